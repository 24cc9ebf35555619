//! The queue between receiving and the lanes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, TryAcquireError};

/// Passes each delivery to one of the waiting tasks. Tokio's channels have a single receiver, and in a multi-consumer
/// channel each wait allocates; waiting for a semaphore does not.
pub(crate) struct Queue<T>(Arc<Shared<T>>);

struct Shared<T> {
    items: Mutex<VecDeque<T>>,
    /// A permit for each item, which `try_push` adds once the item is there. From a closed queue, items are taken without one.
    there: Semaphore,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared { items: Mutex::default(), there: Semaphore::new(0) }))
    }

    /// Appends an item. Once the queue is closed, the item is dropped instead.
    pub(crate) fn push(&self, item: T) {
        drop(self.try_push(item));
    }

    /// Appends an item. Once the queue is closed, the item is returned instead.
    pub(crate) fn try_push(&self, item: T) -> Result<(), T> {
        let mut items = self.items();
        if self.0.there.is_closed() {
            return Err(item);
        }
        items.push_back(item);
        // Unlocked first: the task that this wakes takes the lock. If the queue is closed in between, the item is in it, where
        // tasks look without a permit.
        drop(items);
        self.0.there.add_permits(1);
        Ok(())
    }

    /// Removes the first item, waiting for one if necessary. Returns `None` when the queue is closed and empty. Cancel
    /// safe.
    pub(crate) async fn recv(&self) -> Option<T> {
        // Often there is one, and then this is cheaper than a wait. It overtakes no waiter: each of those has been given
        // the permit of its item.
        if let Some(item) = self.try_recv() {
            return Some(item);
        }
        // An error means that the queue is closed; items in it are still taken.
        if let Ok(permit) = self.0.there.acquire().await {
            permit.forget();
        }
        self.items().pop_front()
    }

    /// Removes the first item, if there is one.
    pub(crate) fn try_recv(&self) -> Option<T> {
        match self.0.there.try_acquire() {
            Ok(permit) => permit.forget(),
            Err(TryAcquireError::Closed) => {}
            Err(TryAcquireError::NoPermits) => return None,
        }
        self.items().pop_front()
    }

    /// Closes the queue to new items.
    pub(crate) fn close(&self) {
        // Under the lock, so that nothing is added after the waiting tasks have looked for the last time.
        let _items = self.items();
        self.0.there.close();
    }

    fn items(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.0.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_item_goes_to_one_who_waits() {
        let queue = Queue::new();
        let wait = |queue: Queue<u8>| tokio::spawn(async move { queue.recv().await });
        let (first, second) = (wait(queue.clone()), wait(queue.clone()));
        tokio::task::yield_now().await;
        queue.push(1);
        queue.push(2);
        let mut taken = [first.await.unwrap(), second.await.unwrap()];
        taken.sort_unstable();
        assert_eq!(taken, [Some(1), Some(2)]);
        assert_eq!(queue.try_recv(), None);
    }

    #[tokio::test]
    async fn a_wait_that_is_dropped_loses_nothing() {
        let queue = Queue::new();
        {
            let wait = std::pin::pin!(queue.recv());
            assert!(futures_util::poll!(wait).is_pending());
            queue.push(1);
        }
        assert_eq!(queue.recv().await, Some(1));
    }

    #[tokio::test]
    async fn items_in_a_closed_queue_are_taken_and_none_is_added() {
        let queue = Queue::new();
        queue.push(1);
        queue.push(2);
        queue.close();
        queue.push(3);
        assert_eq!(queue.recv().await, Some(1));
        assert_eq!(queue.try_recv(), Some(2));
        assert_eq!((queue.recv().await, queue.try_recv()), (None, None));
    }

    #[tokio::test]
    async fn a_waiter_is_woken_by_the_close() {
        let queue = Queue::<u8>::new();
        let wait = tokio::spawn({
            let queue = queue.clone();
            async move { queue.recv().await }
        });
        tokio::task::yield_now().await;
        queue.close();
        assert_eq!(wait.await.unwrap(), None);
    }
}
