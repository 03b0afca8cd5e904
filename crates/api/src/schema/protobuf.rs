//! The field numbers of the built-in kinds, for clients that speak protobuf. The numbers are in `protobuf.txt`.

use std::sync::OnceLock;

use machinery::codec::protobuf::FieldNumbers;

use super::schemas;

/// The numbers of all types in `schemas()`. The first call builds them.
pub fn field_numbers() -> &'static FieldNumbers<'static> {
    static NUMBERS: OnceLock<FieldNumbers<'static>> = OnceLock::new();
    NUMBERS.get_or_init(|| FieldNumbers::new(schemas(), include_str!("protobuf.txt")))
}

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
