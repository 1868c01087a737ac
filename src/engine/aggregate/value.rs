//! What a window shows for a group.

use std::fmt;

use serde::ser::{Error, Serialize, Serializer};
use serde_json::value::RawValue;

/// What a window shows for a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A whole number.
    Integer(i64),
    /// A decimal, in millionths; `None` where no click had a number.
    Decimal(Option<i128>),
    /// The most frequent items, the most frequent first.
    Top(Vec<TopItem>),
}

/// One of the most frequent items.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, utoipa::ToSchema)]
pub struct TopItem {
    /// The item.
    pub item: String,
    /// How often it was seen.
    pub count: i64,
}

const MILLION: u128 = 1_000_000;

/// As JSON writes it: exact, whatever its size, and without zeros at the end.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(whole) => write!(f, "{whole}"),
            Self::Decimal(None) => f.write_str("null"),
            Self::Decimal(Some(micros)) => {
                let size = micros.unsigned_abs();
                let sign = if *micros < 0 { "-" } else { "" };
                let (whole, fraction) = (size / MILLION, size % MILLION);
                if fraction == 0 {
                    return write!(f, "{sign}{whole}");
                }
                let fraction = format!("{fraction:06}");
                write!(f, "{sign}{whole}.{}", fraction.trim_end_matches('0'))
            }
            Self::Top(items) => {
                let json = serde_json::to_string(items).map_err(|_| fmt::Error)?;
                f.write_str(&json)
            }
        }
    }
}

/// A decimal goes out digit by digit: binary floating point would not be exact. Only JSON can be
/// written so; elsewhere use [`fmt::Display`].
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Integer(whole) => serializer.serialize_i64(*whole),
            Self::Decimal(None) => serializer.serialize_none(),
            Self::Decimal(Some(_)) => RawValue::from_string(self.to_string())
                .map_err(S::Error::custom)?
                .serialize(serializer),
            Self::Top(items) => items.serialize(serializer),
        }
    }
}

/// A number, or the list of `top`.
impl utoipa::PartialSchema for Value {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Type};
        OneOfBuilder::new()
            .item(ObjectBuilder::new().schema_type(Type::Number).build())
            .item(ArrayBuilder::new().items(TopItem::schema()).build())
            .description(Some("A number; for `top` a list."))
            .into()
    }
}

impl utoipa::ToSchema for Value {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_written_exactly() {
        let json = |micros| serde_json::to_string(&Value::Decimal(Some(micros))).unwrap();
        assert_eq!(json(1_000_000), "1");
        assert_eq!(json(-1), "-0.000001");
        assert_eq!(json(100_000), "0.1");
        assert_eq!(json(-12_340_000), "-12.34");
        assert_eq!(json(0), "0");
        assert_eq!(
            json(i128::from(i64::MAX) * 1_000_000_000),
            "9223372036854775807000"
        );
    }
}
