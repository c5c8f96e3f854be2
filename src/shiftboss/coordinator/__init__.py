"""The gRPC pool: service and client, scheduler, schedules, autoscaler, and the duties of a leader.

May call db, lifecycle and the worker's source protocol.
"""
