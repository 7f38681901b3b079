"""Batch sizing: how many times a dataflow processes in one window.

One window of many times usually costs less than many windows of few. But if a plan joins changes
with changes, or examines the rows of a group at each time, a step of n times costs n squared, or n
times the group. Then one window of all pending times may take longer than the same amount takes to
arrive, and a dataflow that has fallen behind would never catch up. If the step itself is expensive,
small windows have the same effect.

So the size is found by hill climbing: now and then a window is doubled or halved, and the new size
is kept if it processes more times per second. Quick steps get larger windows as long as that costs
little, because large windows mean less work for other components.

When memory is exhausted, half the size becomes the limit. The cause may have been the rows of one
time, so the limit is doubled again after a rest.
"""

import math

QUICK, SLOW, TOO_SLOW = 0.5, 2.0, 32.0
FASTER, AS_FAST = 1.25, 0.9
REST, MOST_REST = 4, 32  # steps between trials; doubled after a failed one


class BatchSizing:
    """The number of `times` of the next window; `seconds` is the target duration of a step.

    It is never below its initial value, which is worth a step, unless memory is exhausted, and
    never above `at_most`.
    """

    def __init__(self, times: int, seconds: float, at_most: int | None = None) -> None:
        self.times = times
        self._at_most = at_most
        self._seconds = seconds
        self._least = times
        self._most: int | None = None  # the limit from exhausted memory
        self._most_rest = REST  # steps of that size before the limit is raised,
        self._next_most_rest = REST  # and before the next raise
        self._settled = times  # `times` differs from it during a trial
        self._rate = 0.0  # times per second of the last window of that size
        self._rest = 0
        self._next_rest = REST
        self._smaller = True  # the next trial for slow steps
        self._least_rate = math.inf  # of the last window of the initial size

    def stepped(self, times: int, seconds: float) -> None:
        """Record the duration of a step of so many times."""
        self._climb(times, seconds)
        if self._most is not None and times >= self._most:
            self._most_rest -= 1
            if not self._most_rest:
                self._raise_bound(2 * self._most)

    def _climb(self, times: int, seconds: float) -> None:
        rate, slow = times / seconds, seconds > SLOW * self._seconds
        too_slow = seconds > TOO_SLOW * self._seconds
        if too_slow and self._least_rate > rate and times > self._least:
            self.times = self._settled = self._least  # costs have changed: start again
            self._rest = 0
            return
        if times < self.times and not (slow and self._settled_for(times)):
            return  # no more times were pending: it keeps up, or the sample is too small
        if times == self._least:
            self._least_rate = rate
        if self.times != self._settled and not self._succeeded(rate, seconds):
            return
        self._rate = rate
        if self._rest and not too_slow:
            self._rest -= 1
        elif slow and self._smaller and self._settled > self._least:
            self.times = self._bounded(self._settled // 2)
        else:
            self.times = self._bounded(self._settled * 2)

    def _settled_for(self, times: int) -> bool:
        """Settle for a window smaller than planned, if it is large enough to measure.

        Return whether it did.
        """
        if times < max(self._least, self._settled // 2):
            return False
        self.times = self._settled = times
        self._rest, self._smaller = 0, True
        return True

    def _succeeded(self, rate: float, seconds: float) -> bool:
        """End a trial; return whether its size is kept."""
        quick = seconds < QUICK * self._seconds and self.times > self._settled
        if rate > self._rate * (AS_FAST if quick else FASTER):
            self._smaller = self.times < self._settled
            self._settled = self.times
            self._next_rest = REST
            return True
        self.times = self._settled
        self._rest = self._next_rest
        self._next_rest = min(2 * self._next_rest, MOST_REST)
        self._smaller = not self._smaller
        return False

    def exhausted(self, times: int) -> None:
        """Record that memory was exhausted by a step of so many times."""
        self._most = max(times // 2, 1)
        self.times = self._settled = min(self._settled, self._most)
        # four times, because a raise halves it: repeated failures become rare
        self._most_rest = self._next_most_rest = min(4 * self._next_most_rest, MOST_REST)

    def _raise_bound(self, most: int) -> None:
        self._most = most
        if self._settled < self._least:
            self.times = self._settled = min(self._least, most)
        self._most_rest = self._next_most_rest = max(self._next_most_rest // 2, REST)

    def _bounded(self, times: int) -> int:
        bounds = [each for each in (self._most, self._at_most) if each is not None]
        return min((max(times, self._least), *bounds))
