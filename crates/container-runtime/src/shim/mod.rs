//! The shim: one small single-threaded process per pod. It is the pod's pause process, holds its namespaces, starts its
//! containers, reaps them, writes their logs, and goes on when knarr ends.
