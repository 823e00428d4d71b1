"""The specifications of the operators.

A specification is the whole configuration of an operator as a frozen value. It is validated once, when it is
built; it is hashable, can be pickled to a worker, and answers questions about the operator (``can_fold``,
``fires_once``, …), so that no other layer has to derive the answers from which options were set. The
operators in `slackwater.windows.engine` take a specification and process batches.
"""
