"""Programs that only pick words."""

import numpy as np

from foreshore.compute.flow.batch import Batch
from foreshore.compute.flow.compiler import Compiler
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.layout import layout_of
from foreshore.compute.flow.program import Context
from foreshore.types import INT4, ColumnType


def test_program_that_keeps_rows_does_not_copy_them() -> None:
    layout, interner = layout_of((ColumnType(INT4, False),) * 2), Interner()
    ones = np.ones(2, np.int64)
    rows = Batch(np.array([[1, 2], [3, 4]]), ones, ones)
    for columns in ((0, 1), (1, 0), (0,)):
        compiler = Compiler(layout, interner)
        compiler.project(columns)
        compiler.put_row(tuple(layout.columns[i] for i in columns))
        found = compiler.program().run(rows, Context(interner, 1))
        assert found.words.tolist() == rows.words[:, columns].tolist()
        assert (found.words is rows.words) == (columns == (0, 1))
