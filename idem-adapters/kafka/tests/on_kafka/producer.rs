//! A producer that ends with a fatal error. Uses the mock cluster of the client, since a real broker gives no such error
//! on demand.

use futures_util::future::join_all;
use idem_conformance::sink::message;
use idem_core::{Sink, SinkError};
use idem_kafka::{Kafka, Producer};
use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

async fn publish(sink: &Producer) -> Result<(), SinkError> {
    idem_conformance::sink::publish(sink, &message("orders")).await
}

async fn sink(cluster: &MockCluster<'_, rdkafka::producer::DefaultProducerContext>) -> Producer {
    cluster.create_topic("orders", 1, 1).unwrap();
    let sink = Kafka::connect(cluster.bootstrap_servers()).await.unwrap().producer();
    sink.open().await.unwrap();
    publish(&sink).await.unwrap();
    sink
}

/// A fatal error confirms nothing, and the next message goes through a new producer.
#[tokio::test(flavor = "multi_thread")]
async fn a_fatal_error_confirms_nothing_and_is_followed_by_a_new_producer() {
    let cluster = MockCluster::new(1).unwrap();
    let sink = sink(&cluster).await;
    cluster.request_errors(RDKafkaApiKey::Produce, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER]);
    let error = publish(&sink).await.unwrap_err();
    assert!(matches!(error, SinkError::Broker(_)), "{error}");
    for result in join_all((0..100).map(|_| publish(&sink))).await {
        result.unwrap();
    }
    sink.close().await;
}

/// An error that passes is hidden by the client, which sends again.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_passes_is_no_failure() {
    let cluster = MockCluster::new(1).unwrap();
    let sink = sink(&cluster).await;
    let passes = [
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR__TRANSPORT,
    ];
    cluster.request_errors(RDKafkaApiKey::Produce, &passes);
    publish(&sink).await.unwrap();
    sink.close().await;
}

/// A wrong clock or a policy concerns each message.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_is_not_about_the_message_is_a_failure_of_the_broker() {
    let cluster = MockCluster::new(1).unwrap();
    let sink = sink(&cluster).await;
    for code in [
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_POLICY_VIOLATION,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED,
    ] {
        cluster.request_errors(RDKafkaApiKey::Produce, &[code, code]);
        let error = publish(&sink).await.unwrap_err();
        assert!(matches!(error, SinkError::Broker(_)), "{error}");
        cluster.clear_request_errors(RDKafkaApiKey::Produce);
    }
    sink.close().await;
}

/// A topic to which the user may not write refuses its messages, and no others.
#[tokio::test(flavor = "multi_thread")]
async fn a_forbidden_topic_refuses_its_messages() {
    let cluster = MockCluster::new(1).unwrap();
    let sink = sink(&cluster).await;
    cluster.request_errors(RDKafkaApiKey::Produce, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED]);
    let error = publish(&sink).await.unwrap_err();
    assert!(matches!(error, SinkError::Message(_)) && error.to_string().contains("may not write"), "{error}");
    sink.close().await;
}
