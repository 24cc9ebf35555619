//! NATS JetStream as a source of idem.
