//! The RabbitMQ adapter of idem.
