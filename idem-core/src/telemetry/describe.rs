//! The unit and the description of each metric, which an exporter prints (`# HELP` for Prometheus). Those of the metrics that wake
//! people end with the command that shows more.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

const COUNTERS: [(&str, &str); 6] = [
    ("idem_deliveries_total", "Deliveries and runs from the inbox, by their outcome"),
    ("idem_stale_acks_total", "Acks that no longer reached the broker, which delivers those messages again"),
    (
        "idem_lost_leases_total",
        "Leases of a key-value store that ended while the handler ran: its writes were refused, its effects elsewhere may repeat",
    ),
    ("idem_outbox_published_total", "Messages of the outbox that the broker has confirmed"),
    (
        "idem_outbox_rejected_total",
        "Attempts to publish that the broker has rejected, and that are followed by another one",
    ),
    ("idem_outbox_given_up_total", "Messages of the outbox that became dead letters"),
];

const GAUGES: [(&str, &str); 10] = [
    ("idem_in_flight", "Deliveries that are being processed or stored"),
    ("idem_parked", "Deliveries that cannot run now and wait unacked in this worker"),
    ("idem_blocked", "Parked deliveries behind another one of their key, which runs or is parked itself"),
    ("idem_scheduled", "Messages in the inbox that will run"),
    ("idem_dead", "Dead letters in the inbox: idem dead group"),
    ("idem_source_lag", "Messages that wait at the broker"),
    ("idem_outbox_waiting", "Messages that have still to be published, counted up to 100,000"),
    ("idem_outbox_dead", "Dead letters of the outbox: idem outbox list"),
    ("idem_outbox_active", "1 while this relay publishes, 0 while it stands by"),
    (
        "idem_outbox_unread",
        "Messages of an outbox that no relay has looked at for a minute, counted up to 100,000: idem doctor",
    ),
];

/// Gauges, in seconds.
const TIMES: [(&str, &str); 3] = [
    (
        "idem_blocked_oldest_seconds",
        "Time for which the oldest parked delivery has been behind another one of its key: idem status",
    ),
    ("idem_oldest_due_seconds", "Time since the oldest due inbox message became due: idem status"),
    ("idem_outbox_oldest_seconds", "Time since the oldest message that has still to be published was staged"),
];

/// Histograms, in seconds.
const DURATIONS: [(&str, &str); 6] = [
    ("idem_outbox_lag_seconds", "From the time at which a message was staged to its confirm by the broker"),
    ("idem_claim_wait_seconds", "From BEGIN to the response of the claim"),
    ("idem_handler_seconds", "The run of the handler"),
    ("idem_commit_seconds", "The last check and COMMIT"),
    ("idem_inbox_wait_seconds", "From the time at which a message of the inbox was due to the start of its run"),
    (
        "idem_duplicate_age_seconds",
        "From the commit of a message to the delivery of its copy; it must stay below the retention",
    ),
];

/// Describes all metrics of the core to the recorder that is installed. Repeating it does no harm.
pub(crate) fn describe() {
    COUNTERS.into_iter().for_each(|(name, text)| describe_counter!(name, text));
    GAUGES.into_iter().for_each(|(name, text)| describe_gauge!(name, text));
    TIMES.into_iter().for_each(|(name, text)| describe_gauge!(name, Unit::Seconds, text));
    DURATIONS.into_iter().for_each(|(name, text)| describe_histogram!(name, Unit::Seconds, text));
}
