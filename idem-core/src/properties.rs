//! Broker-specific properties of a message.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// The broker-specific properties of a message, as text by name; empty on most brokers.
///
/// RabbitMQ: `exchange` (missing for the default one), `priority`, `expiration`, `content_encoding`, `delivery_mode`,
/// `user_id`, `app_id`, `cluster_id`, each if the message has it.
///
/// ```
/// # use idem_core::{Delivery, Properties};
/// // As RabbitMQ delivers it.
/// let properties: Properties = [("exchange", "shop"), ("priority", "9")].into_iter().collect();
/// let delivery = Delivery::new("orders", "{}").with_properties(properties);
/// let priority = delivery.properties().get("priority").and_then(|priority| priority.parse().ok());
/// assert_eq!((priority, delivery.properties().get("app_id")), (Some(9), None));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Properties(BTreeMap<Cow<'static, str>, String>);

impl Properties {
    /// Sets a property, replacing one with the same name.
    pub fn insert(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// Returns the property with this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Iterates over all properties, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value.as_str()))
    }

    /// Returns the number of properties.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no properties.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<N: Into<Cow<'static, str>>, V: Into<String>> FromIterator<(N, V)> for Properties {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(properties: I) -> Self {
        Self(properties.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// Shows names but no values, as for headers.
impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_sorted_by_name_and_the_last_value_of_a_name_stands() {
        let mut properties: Properties = [("priority", "1"), ("exchange", "orders")].into_iter().collect();
        properties.insert("priority", "9");
        assert_eq!(properties.iter().collect::<Vec<_>>(), [("exchange", "orders"), ("priority", "9")]);
        assert_eq!((properties.get("priority"), properties.get("app_id")), (Some("9"), None));
        assert_eq!(format!("{properties:?}"), r#"["exchange", "priority"]"#);
    }
}
