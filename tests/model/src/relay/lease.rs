//! The lease: taken, lost and given up.

use super::state::{Lease, RELAYS, Relay, Steps};

/// The names of the relays.
pub(super) const NAMES: [&str; RELAYS] = ["relay A", "relay B"];

/// A relay takes the lease if it is free or its lease is over, releases it, and notices by its renewal that it has lost it.
pub(super) fn steps(steps: &mut Steps<'_>, relay: usize) {
    let state = steps.state;
    let number = u8::try_from(relay).unwrap_or_default();
    let believes = state.relays[relay].holds;
    let takes = match state.lease {
        Lease::Free => true,
        Lease::Leased(_) => false,
        Lease::Expired(_) => !state.has_token(relay),
    };
    if takes && !believes {
        steps.step(NAMES[relay], "takes the lease", 0, |after| {
            after.lease = Lease::Leased(number);
            after.relays[relay] = Relay { holds: true, ..Relay::default() };
        });
    }
    if believes && !state.has_token(relay) {
        steps.step(NAMES[relay], "notices that it has lost the lease", 0, |after| {
            after.relays[relay] = Relay::default()
        });
    }
    if believes && state.has_token(relay) && state.left.returns > 0 {
        steps.setback(NAMES[relay], "releases the lease", 0, |after| {
            after.left.returns -= 1;
            after.lease = Lease::Free;
            after.relays[relay] = Relay::default();
        });
    }
    if state.lease == Lease::Expired(number) {
        steps.step(NAMES[relay], "renews its lease, which nobody has taken", 0, |after| {
            after.lease = Lease::Leased(number)
        });
    }
}

/// The failures of a relay: it is paused beyond its lease, or its process ends.
pub(super) fn failures(steps: &mut Steps<'_>, relay: usize) {
    let state = steps.state;
    let number = u8::try_from(relay).unwrap_or_default();
    if state.left.pauses > 0 && state.lease == Lease::Leased(number) {
        steps.setback(NAMES[relay], "is paused for longer than its lease", 0, |after| {
            after.left.pauses -= 1;
            after.lease = Lease::Expired(number);
        });
    }
    if state.left.kills > 0 && state.relays[relay].holds {
        steps.setback(NAMES[relay], "is killed", 0, |after| {
            after.left.kills -= 1;
            if after.has_token(relay) {
                after.lease = Lease::Free;
            }
            after.relays[relay] = Relay::default();
        });
    }
}
