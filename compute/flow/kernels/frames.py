"""Kernels over the frames of rows in order within partitions."""

from foreshore.compute.flow.kernels.jit import kernel


@kernel
def find_edges(keys, edges, null, endless, ends, right, before, found):
    """Set the place of each row's edge among the keys of its partition, which are in order.

    It is before the first key that is not less than the edge, or with `right` after the last one
    that is not greater; of an `endless` edge before or after all. Rows whose key is NULL, which
    stand together, are left as they are. `ends` has the end of each row's partition.
    """
    start = 0
    while start < len(keys):
        stop = ends[start]
        first = start
        while first < stop and null[first]:
            first += 1
        last = first
        while last < stop and not null[last]:
            last += 1
        for row in range(first, last):
            if endless[row]:
                found[row] = first if before else last
                continue
            low, high = first, last
            while low < high:
                middle = (low + high) >> 1
                if keys[middle] < edges[row] or (right and keys[middle] == edges[row]):
                    low = middle + 1
                else:
                    high = middle
            found[row] = low
        start = stop
