"""Signals ask a run to stop; a Ctrl-C after that does not wait, another termination or hang-up does."""

from __future__ import annotations

import signal

import pytest

from satl.training.signals import stop_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_each_of_them_asks_to_stop_and_the_handlers_come_back(number: signal.Signals) -> None:
    outside = signal.signal(number, signal.default_int_handler)  # the tests themselves may run under nohup
    try:
        with stop_signals() as asked:
            assert not asked()
            signal.raise_signal(number)
            assert asked()
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, outside)


def test_what_is_sent_to_all_processes_and_passed_on_as_well_does_not_cut_off_the_saving() -> None:
    with stop_signals() as asked:
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP, signal.SIGHUP, signal.SIGTERM):
            signal.raise_signal(number)
        assert asked()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_after_a_hang_up_still_saves() -> None:
    with stop_signals() as asked:
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGINT)
        assert asked()


def test_what_nohup_switched_off_stays_off() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals() as asked:
            signal.raise_signal(signal.SIGHUP)
            assert not asked()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
