"""Lifecycles of Azure objects: each module creates, reads, lists, changes and deletes the objects of one service.

The name of a module is that of its file in conformance/lifecycles, which lists the steps with their expected
outcomes.
"""
