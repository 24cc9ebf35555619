//! Why a message ran, or did not, and what a delivery of it now would be.

use idem_core::Store;
use idem_core::operator::Asked;
use maud::html;

use crate::layout::{facts, listed};
use crate::lists::changed;
use crate::text::short;
use crate::visit::{Failure, View, Visit};

pub(crate) async fn view<S: Store>(visit: &Visit<S>) -> Result<View, Failure> {
    let (Some(handler), Some(key)) = (visit.fields.get("handler"), visit.fields.get("key")) else {
        let body = html! { p { "Ask by the box above: a handler, and the key of a message as the log prints it." } };
        return Ok(("Why?".to_owned(), body));
    };
    let (at, why) = (&visit.at, visit.operator().why(&Asked::new(handler, key)).await?);
    let columns = ["id", "state", "reason", "error", "attempts", "deliveries", "run_at", "died_at"];
    let body = html! {
        p.verdict { strong { "Delivered now: " } (short(&why.verdict.to_string(), 600)) "." }
        @for hint in &why.hints { p.note { (short(hint, 600)) } }
        section {
            h2 { "Claim" }
            @if let Some(claim) = &why.claim { (facts(at, claim)) }
            @else { p.none { "None: it was not seen, or its claim was pruned." } }
        }
        (listed(at, "In the inbox", &columns, &why.rows))
        (changed(at, &why.operations))
    };
    Ok((format!("{}/{}  {}", why.consumer, why.handler, why.key), body))
}
