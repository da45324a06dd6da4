//! Planner, plan execution, explain and write execution.
#![forbid(unsafe_code)]
