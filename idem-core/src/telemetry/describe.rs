//! The unit and the description of each metric, which an exporter prints (`# HELP` for Prometheus).

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Describes all metrics of the core to the recorder that is installed. Repeating it does no harm.
pub(crate) fn describe() {
    describe_counter!("idem_deliveries_total", "Deliveries and runs from the inbox, by their outcome");
    describe_counter!(
        "idem_stale_acks_total",
        "Acks that no longer reached the broker, which delivers those messages again"
    );
    describe_gauge!("idem_in_flight", "Deliveries that are being processed or stored");
    describe_gauge!("idem_parked", "Deliveries that cannot run now and wait unacked in this worker");
    describe_gauge!(
        "idem_blocked",
        "Parked deliveries behind another one of their key, which runs or is parked itself"
    );
    describe_gauge!(
        "idem_blocked_oldest_seconds",
        Unit::Seconds,
        "Time for which the oldest parked delivery has been behind another one of its key"
    );
    describe_gauge!("idem_scheduled", "Messages in the inbox that will run");
    describe_gauge!("idem_dead", "Dead letters in the inbox");
    describe_gauge!("idem_oldest_due_seconds", Unit::Seconds, "Time since the oldest due inbox message became due");
    describe_gauge!("idem_source_lag", "Messages that wait at the broker");
    describe_counter!("idem_outbox_published_total", "Messages of the outbox that the broker has confirmed");
    describe_counter!(
        "idem_outbox_refused_total",
        "Attempts to publish that the broker has refused, and that are followed by another one"
    );
    describe_counter!("idem_outbox_given_up_total", "Messages of the outbox that became dead letters");
    describe_gauge!("idem_outbox_waiting", "Messages that have still to be published, counted up to 100,000");
    describe_gauge!(
        "idem_outbox_oldest_seconds",
        Unit::Seconds,
        "Time since the oldest message that has still to be published was staged"
    );
    describe_gauge!("idem_outbox_dead", "Dead letters of the outbox");
    describe_gauge!("idem_outbox_active", "1 while this relay publishes, 0 while it stands by");
    describe_gauge!(
        "idem_outbox_unread",
        "Messages of an outbox that no relay has looked at for a minute, counted up to 100,000"
    );
    describe_histogram!(
        "idem_outbox_lag_seconds",
        Unit::Seconds,
        "From the time at which a message was staged to its confirm by the broker"
    );
    describe_histogram!("idem_claim_wait_seconds", Unit::Seconds, "From BEGIN to the response of the claim");
    describe_histogram!("idem_handler_seconds", Unit::Seconds, "The run of the handler");
    describe_histogram!("idem_commit_seconds", Unit::Seconds, "The last check and COMMIT");
    describe_histogram!(
        "idem_inbox_wait_seconds",
        Unit::Seconds,
        "From the time at which a message of the inbox was due to the start of its run"
    );
    describe_histogram!(
        "idem_duplicate_age_seconds",
        Unit::Seconds,
        "From the commit of a message to the delivery of its copy; it must stay below the retention"
    );
}
