# SPDX-License-Identifier: Apache-2.0
import signal

# A run in the background or under nohup ignores these signals, and would hand that
# down to every process that a test starts and wants to end by them.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
