use super::*;

#[test]
fn a_trace_has_each_of_its_headers_once_and_in_one_line() {
    use opentelemetry::propagation::Injector;

    let mut headers = Headers::new();
    let set = [("traceparent", "first"), ("traceparent", "second"), ("tracestate", ""), ("tracestate", "a=b\n")];
    set.into_iter().for_each(|(name, value)| Carrier(&mut headers).set(name, value.to_owned()));
    assert_eq!(headers, Headers::from_iter([("traceparent", "first")]));
}
