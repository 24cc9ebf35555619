//! Says at once why a test failed.

use std::io::Write;
use std::sync::Once;

static HOOK: Once = Once::new();

/// From now on, a panic on the thread of a test is also written to the real standard error. The harness keeps what it
/// captured until all tests have ended, and a log that is cut off then shows the name of the test alone.
pub(crate) fn announce() {
    HOOK.call_once(|| {
        let captured = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            captured(info);
            // The runtime's threads run handlers, which panic on purpose.
            if let Some(test) = std::thread::current().name().filter(|name| name.contains("::")) {
                let (at, text) = (info.location().map(ToString::to_string), info.payload_as_str());
                // The harness captures `eprintln!`, and not this.
                let _ = writeln!(
                    std::io::stderr(),
                    "{test} panicked at {}: {}",
                    at.unwrap_or_default(),
                    text.unwrap_or_default()
                );
            }
        }));
    });
}
