"""How many times the windows of a dataflow have.

A window of many times costs less than many windows of few, up to a point. Where a plan joins what
changes with what changes, or looks at the rows of a group at each time, a step of n times costs
n squared or n times the group: one window of all that has arrived may then take longer than as much
takes to arrive again, and a dataflow that has once fallen behind would never catch up. Where it is
the step itself that costs, small windows would do the same.

So it is tried: now and then a window is twice as large as those before, or half, and if more times
are done in a second that is the size from then on (hill climbing). Steps that are quick have more
times as long as that does not cost much, as larger windows are less work for everybody else.

Where memory was not enough half as many are the most, for now: it may have been the rows of one
time that were too many. After a rest the bound is twice as high again.
"""

import math

QUICK, SLOW, TOO_SLOW = 0.5, 2.0, 32.0
FASTER, AS_FAST = 1.25, 0.9
REST, MOST_REST = 4, 32  # steps between trials: after one that was for nothing twice as many


class BatchSizing:
    """The number of `times` of the next window; `seconds` is what a step may well take.

    It is never less than at first, as so few are worth a step of their own, but for want of memory.
    """

    def __init__(self, times: int, seconds: float) -> None:
        self.times = times
        self._seconds = seconds
        self._least = times
        self._most: int | None = None  # for want of memory
        self._most_rest = REST  # steps of so many before the bound is raised,
        self._next_most_rest = REST  # and before the next time
        self._settled = times  # of which `times` differs for the length of a trial
        self._rate = 0.0  # times in a second, of the last window of that size
        self._rest = 0
        self._next_rest = REST
        self._smaller = True  # what to try next where steps are slow
        self._least_rate = math.inf  # of the last window of as many as at first

    def stepped(self, times: int, seconds: float) -> None:
        """Hear how long a step of so many times took."""
        self._climb(times, seconds)
        if self._most is not None and times >= self._most:
            self._most_rest -= 1
            if not self._most_rest:
                self._raise_bound(2 * self._most)

    def _climb(self, times: int, seconds: float) -> None:
        rate, slow = times / seconds, seconds > SLOW * self._seconds
        too_slow = seconds > TOO_SLOW * self._seconds
        if too_slow and self._least_rate > rate and times > self._least:
            self.times = self._settled = self._least  # as costs have changed: it begins anew
            self._rest = 0
            return
        if times < self.times and not (slow and self._settled_for(times)):
            return  # it was all that there was: it keeps up, or says little of so many
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
        """Take fewer than was the pace, if not too few to say something of it, for it from now on.

        Return whether that was done.
        """
        if times < max(self._least, self._settled // 2):
            return False
        self.times = self._settled = times
        self._rest, self._smaller = 0, True
        return True

    def _succeeded(self, rate: float, seconds: float) -> bool:
        """End a trial; return whether its size is the one from now on."""
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
        """Hear that there was not the memory for a step of so many times."""
        self._most = max(times // 2, 1)
        self.times = self._settled = min(self._settled, self._most)
        # four times, as raising halves it: what is for nothing again and again is seldom tried
        self._most_rest = self._next_most_rest = min(4 * self._next_most_rest, MOST_REST)

    def _raise_bound(self, most: int) -> None:
        self._most = most
        if self._settled < self._least:
            self.times = self._settled = min(self._least, most)
        self._most_rest = self._next_most_rest = max(self._next_most_rest // 2, REST)

    def _bounded(self, times: int) -> int:
        times = max(times, self._least)
        return times if self._most is None else min(times, self._most)
