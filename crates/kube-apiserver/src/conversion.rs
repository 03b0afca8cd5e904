//! Objects between the version that is stored and the one that is asked for.
//!
//! The write path works on objects in the stored version, but where a webhook converts them: those stay in the version that was
//! asked for until they are stored, because rules and schemas are about that one.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use machinery::kind::Convert;
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::Value;
use store::cache::Item;

use crate::app::App;
use crate::custom::CustomRules;
use crate::custom::convert::Converter;

/// How one served version of a kind is stored.
pub enum Conversion {
    /// As it is.
    None,
    BuiltIn(&'static Convert),
    /// By the name of the version alone, or by a webhook.
    Custom(Arc<CustomRules>),
}

impl Conversion {
    /// The object in the version that was asked for, with its resourceVersion.
    pub fn decode(&self, item: &Item) -> Result<Value, Status> {
        let stored = decode_stored(&item.value, item.revision.0)
            .map_err(|why| Status::internal(format!("cannot decode {}: {why}", item.key)))?;
        Ok(self.to_requested(stored))
    }

    /// The stored object for a write, with the sets of its managed fields as texts: most writes do not look into them. Those of
    /// custom objects are what they are, because other servers convert such objects.
    pub fn decode_for_write(&self, value: &Bytes, revision: u64) -> serde_json::Result<Value> {
        if matches!(self, Conversion::Custom(_)) {
            return decode_stored(value, revision);
        }
        match machinery::codec::decode_json_packed(value) {
            Ok(decoded) => Ok(with_revision(decoded.value, revision)),
            // It has the words for what is wrong.
            Err(_) => decode_stored(value, revision),
        }
    }

    /// A stored object in the version that was asked for, where nobody else is asked.
    pub fn to_requested(&self, object: Value) -> Value {
        match self {
            Conversion::None => object,
            Conversion::BuiltIn(convert) => (convert.from_storage)(object),
            Conversion::Custom(custom) => custom.to_requested(object),
        }
    }

    /// The same; copied only where the versions differ.
    pub fn shown<'a>(&self, stored: &'a Value) -> Cow<'a, Value> {
        match self {
            Conversion::None => Cow::Borrowed(stored),
            Conversion::BuiltIn(_) | Conversion::Custom(_) => Cow::Owned(self.to_requested(stored.clone())),
        }
    }

    /// The same, where it may take asking somebody else. The object may be of any version.
    pub async fn show(&self, app: &App, object: Value) -> Result<Value, Status> {
        if self.asks_others() {
            Ok(self.show_all(app, vec![object]).await?.pop().unwrap_or_default())
        } else {
            Ok(self.to_requested(object))
        }
    }

    pub async fn show_all(&self, app: &App, mut objects: Vec<Value>) -> Result<Vec<Value>, Status> {
        let Some((custom, converter)) = self.converter() else {
            return Ok(objects.into_iter().map(|object| self.to_requested(object)).collect());
        };
        objects = objects.into_iter().map(|object| custom.read(object)).collect();
        objects = converter.convert(app, objects, custom.versions().0).await?;
        Ok(objects.into_iter().map(|object| custom.converted(object)).collect())
    }

    /// An object of the version that was asked for as the write path works on it.
    pub fn to_work(&self, object: Value) -> Value {
        match self {
            Conversion::None => object,
            Conversion::BuiltIn(convert) => (convert.to_storage)(object),
            Conversion::Custom(custom) if custom.converter.is_some() => object,
            Conversion::Custom(custom) => custom.to_storage(object),
        }
    }

    /// A stored object as the write path works on it. Custom objects may be older than their definition's schema.
    pub async fn stored_to_work(&self, app: &App, object: Value) -> Result<Value, Status> {
        match self {
            Conversion::None | Conversion::BuiltIn(_) => Ok(object),
            Conversion::Custom(custom) if custom.converter.is_some() => self.show(app, object).await,
            Conversion::Custom(custom) => Ok(custom.to_storage(custom.to_requested(object))),
        }
    }

    /// An object of the write path as it is stored.
    pub async fn to_stored(&self, app: &App, mut object: Value) -> Result<Value, Status> {
        let Conversion::Custom(custom) = self else { return Ok(object) };
        if let Some(converter) = &custom.converter {
            let objects = converter.convert(app, vec![object], custom.versions().1).await?;
            object = objects.into_iter().next().unwrap_or_default();
        }
        custom.default_stored(&mut object);
        Ok(object)
    }

    /// Whether a webhook brings objects of this kind from one version into another.
    pub fn asks_others(&self) -> bool {
        self.converter().is_some()
    }

    fn converter(&self) -> Option<(&CustomRules, &Converter)> {
        let Conversion::Custom(custom) = self else { return None };
        Some((custom, custom.converter.as_ref()?))
    }

    /// Whether an object of that revision is sent as it is stored.
    pub fn as_stored(&self, revision: u64) -> bool {
        match self {
            Conversion::None => true,
            Conversion::BuiltIn(_) => false,
            Conversion::Custom(custom) => custom.as_stored(revision),
        }
    }
}

/// A stored value as an object that carries its revision.
pub(crate) fn decode_stored(value: &Bytes, revision: u64) -> serde_json::Result<Value> {
    Ok(with_revision(serde_json::from_slice(value)?, revision))
}

fn with_revision(mut object: Value, revision: u64) -> Value {
    object.meta_mut().insert("resourceVersion".into(), revision.to_string().into());
    object
}
