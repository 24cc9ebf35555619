//! Apache Kafka as a source of idem.
