//! Several queues for one worker.

use std::sync::Arc;

use idem_core::Error;

use crate::source::Queue;

impl Queue {
    /// Another queue of the same server beside this one, for one worker by one connection. Each delivery names its own queue
    /// as its source.
    ///
    /// Each queue has a prefetch of its own, which limits its own unsettled deliveries, and the queues take turns: a
    /// queue with a backlog keeps no other one waiting. With an order, the deliveries of each queue share an ordering key. Where one queue cannot be consumed,
    /// the whole source is opened again.
    ///
    /// ```no_run
    /// # async fn example(rabbit: idem_rabbitmq::RabbitMq) -> Result<(), idem_core::Error> {
    /// let both = rabbit.queue("orders").await?.and(rabbit.declare("refunds").await?)?;
    /// # let _ = both;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] where the queues come from different [`RabbitMq`](crate::RabbitMq)s, or one is given twice.
    pub fn and(mut self, mut other: Self) -> Result<Self, Error> {
        if !Arc::ptr_eq(&self.config, &other.config) {
            return Err(Error::Config(format!(
                "queues `{}` and `{}` belong to different connections, but a worker has one: make both by the same RabbitMq",
                self.name, other.name
            )));
        }
        self.members.append(&mut other.members);
        let mut names: Vec<_> = self.members.iter().map(|member| &*member.name).collect();
        let joined = names.join(", ");
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::Config(format!("queue `{}` is given twice to one worker: give it once", twice[0])));
        }
        self.name = joined.into();
        Ok(self)
    }
}
