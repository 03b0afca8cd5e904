//! Starts tasks. What tokio makes of a task is generic over its future, twice, for both of its schedulers: some six kilobytes
//! of code for each place that starts one. Behind a pointer all futures of one outcome are the same to it.

use std::pin::Pin;

use tokio::task::JoinHandle;

pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// `tokio::spawn`, for everything that is not started for each of very many small things.
#[track_caller]
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(boxed(future))
}

/// The same for sets of tasks and trackers, which start them by themselves.
pub fn boxed<T>(future: impl Future<Output = T> + Send + 'static) -> Boxed<T> {
    Box::pin(future)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_answers_and_its_panic_is_told() {
        assert_eq!(spawn(async { 5 }).await.expect("it ends"), 5);
        let mut set = tokio::task::JoinSet::new();
        set.spawn(boxed(async { "one" }));
        set.spawn(boxed(std::future::ready("one")));
        assert_eq!(set.join_all().await, ["one", "one"]);
        let broken = spawn(async { assert!(std::env::args().count() == 0, "broken") }).await;
        assert!(broken.expect_err("it panics").is_panic());
    }

    /// All tasks of one outcome are one type to tokio, whatever they do.
    #[test]
    fn futures_of_one_outcome_are_alike() {
        let (one, other) = (boxed(async { 1 }), boxed(std::future::ready(2)));
        assert_eq!(std::any::type_name_of_val(&one), std::any::type_name_of_val(&other));
        assert_eq!(std::mem::size_of_val(&one), 2 * std::mem::size_of::<usize>());
    }
}
