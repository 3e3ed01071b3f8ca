"""Pseudo-terminals for tests of what users see; a test is skipped on a system that has none, such as a bare chroot."""

import os
import pty

import pytest


def has_terminals():
    try:
        ends = pty.openpty()
    except OSError:
        return False
    for end in ends:
        os.close(end)
    return True


def needs_terminals():
    if not has_terminals():
        pytest.skip("this system has no pseudo-terminals in /dev/pts")


def open_terminal():
    """Our end and the program's, as pty.openpty()."""
    needs_terminals()
    return pty.openpty()


def fork_terminal():
    """As pty.fork()."""
    needs_terminals()
    return pty.fork()
