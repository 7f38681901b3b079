"""Settings that tune PostgreSQL's planner and memory: clients set them, without effect here."""

_METHODS = """
    async_append bitmapscan gathermerge hashagg hashjoin incremental_sort indexonlyscan indexscan
    material memoize mergejoin nestloop parallel_append parallel_hash partition_pruning
    partitionwise_aggregate partitionwise_join seqscan sort tidscan
""".split()
SWITCHES = (*(f"enable_{name}" for name in _METHODS), "geqo", "parallel_leader_participation")
OFF = frozenset({"enable_partitionwise_aggregate", "enable_partitionwise_join"})  # by default

# Whole and other numbers with their defaults, some with a unit.
NUMBERS = {
    "cpu_index_tuple_cost": "0.005",
    "cpu_operator_cost": "0.0025",
    "cpu_tuple_cost": "0.01",
    "cursor_tuple_fraction": "0.1",
    "default_statistics_target": "100",
    "effective_cache_size": "4GB",
    "effective_io_concurrency": "1",
    "from_collapse_limit": "8",
    "geqo_effort": "5",
    "geqo_generations": "0",
    "geqo_pool_size": "0",
    "geqo_seed": "0",
    "geqo_selection_bias": "2",
    "geqo_threshold": "12",
    "hash_mem_multiplier": "2",
    "jit_above_cost": "100000",
    "jit_inline_above_cost": "500000",
    "jit_optimize_above_cost": "500000",
    "join_collapse_limit": "8",
    "maintenance_io_concurrency": "10",
    "maintenance_work_mem": "64MB",
    "max_parallel_maintenance_workers": "2",
    "max_parallel_workers": "8",
    "max_parallel_workers_per_gather": "2",
    "max_stack_depth": "2MB",
    "min_parallel_index_scan_size": "512kB",
    "min_parallel_table_scan_size": "8MB",
    "parallel_setup_cost": "1000",
    "parallel_tuple_cost": "0.1",
    "random_page_cost": "4",
    "recursive_worktable_factor": "10",
    "seq_page_cost": "1",
    "temp_buffers": "8MB",
    "work_mem": "4MB",
}
CHOICES = {
    "constraint_exclusion": ("partition", "on", "off"),
    "force_parallel_mode": ("off", "on", "regress"),
    "plan_cache_mode": ("auto", "force_generic_plan", "force_custom_plan"),
}
