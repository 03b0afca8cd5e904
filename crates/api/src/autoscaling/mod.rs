//! Kinds of the API group autoscaling.

pub mod horizontalpodautoscaler;
pub mod horizontalpodautoscaler_v1;

#[cfg(test)]
mod tests;
