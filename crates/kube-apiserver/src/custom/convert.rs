//! Conversion by webhook: objects of a custom kind are brought from one of its versions into another by whoever wrote its
//! definition. What comes back is checked: it must be the same object still, in the version that was asked for.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::{Value, json};

use crate::app::App;
use crate::names;
use crate::webhooks::{self, Failed, Hook, HookError, NotJson};

const GROUP: &str = "apiextensions.k8s.io";
const TIMEOUT: Duration = Duration::from_secs(30);
/// How many objects of a list are sent at once.
const OBJECTS_MAX: usize = 256;

/// Why objects were not converted, in upstream's words.
#[derive(Debug, thiserror::Error)]
enum ConvertError {
    #[error("{0}")]
    Hook(Arc<HookError>),
    #[error("no supported conversion review versions")]
    NoVersion,
    #[error("{}", .0.why)]
    Call(Failed),
    #[error(transparent)]
    Decode(#[from] NotJson),
    #[error("expected webhook response of {wanted}, Kind=ConversionReview, got {got}, Kind={kind}")]
    Review { wanted: String, got: String, kind: String },
    #[error("no response provided")]
    NoResponse,
    #[error("expected response.uid={expected:?}, got {found:?}")]
    Uid { expected: String, found: String },
    #[error("response.result.status was '{0}', not 'Success'")]
    NoSuccess(String),
    /// The webhook's own sentence.
    #[error("{0}")]
    Refused(String),
}

/// Why a converted object is not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum ConvertedError {
    #[error("invalid groupVersion (expected {expected}, received {found})")]
    Version { expected: String, found: String },
    #[error("must have the same {what}: {expected} != {found}")]
    Changed { what: &'static str, expected: String, found: String },
    #[error("missing metadata in converted object")]
    NoMetadata,
    #[error("invalid metadata.{0} in converted object")]
    Metadata(&'static str),
}

/// How the objects of one definition are converted.
pub struct Converter {
    hook: Result<Hook, Arc<HookError>>,
    /// The first version of the review that both sides know.
    review_version: Option<&'static str>,
}

impl Converter {
    /// None where versions differ in their name only.
    pub fn of(definition: &Value) -> Option<Converter> {
        let conversion = &definition["spec"]["conversion"];
        if conversion["strategy"] != "Webhook" {
            return None;
        }
        let webhook = &conversion["webhook"];
        let versions = webhook["conversionReviewVersions"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let known = versions.filter_map(|version| ["v1", "v1beta1"].into_iter().find(|known| *known == version));
        Some(Converter { hook: Hook::of(&webhook["clientConfig"]).map_err(Arc::new), review_version: { known }.next() })
    }

    /// The objects in that version, in their order. Those that have it already are not sent.
    pub async fn convert(&self, app: &App, mut objects: Vec<Value>, desired: &str) -> Result<Vec<Value>, Status> {
        let others: Vec<usize> = (0..objects.len()).filter(|place| objects[*place]["apiVersion"] != desired).collect();
        for places in others.chunks(OBJECTS_MAX) {
            let sent: Vec<&Value> = places.iter().map(|place| &objects[*place]).collect();
            let first = sent[0];
            let kind = |object: &Value| format!("{}, Kind={}", text(&object["apiVersion"]), text(&object["kind"]));
            let failed = |why: String| Status::new(500, "", format!("conversion webhook for {} {why}", kind(first)));
            let answered = self.ask(app, &sent, desired).await.map_err(|why| failed(format!("failed: {why}")))?;
            if answered.len() != sent.len() {
                let why = format!("returned {} objects, expected {}", answered.len(), sent.len());
                return Err(failed(why));
            }
            let mut checked = Vec::with_capacity(sent.len());
            for (index, (original, converted)) in sent.iter().zip(answered).enumerate() {
                let bad =
                    |why: ConvertedError| failed(format!("returned invalid converted object at index {index}: {why}"));
                checked.push(check(original, converted, desired).map_err(bad)?);
            }
            for (place, object) in places.iter().zip(checked) {
                objects[*place] = object;
            }
        }
        Ok(objects)
    }

    async fn ask(&self, app: &App, objects: &[&Value], desired: &str) -> Result<Vec<Value>, ConvertError> {
        let hook = self.hook.as_ref().map_err(|error| ConvertError::Hook(error.clone()))?;
        let version = self.review_version.ok_or(ConvertError::NoVersion)?;
        let uid = names::uid();
        let review = json!({"kind": "ConversionReview", "apiVersion": format!("{GROUP}/{version}"),
            "request": {"uid": uid, "desiredAPIVersion": desired, "objects": objects}});
        let body = Bytes::from(review.to_string());
        let answered = webhooks::post(app, hook, body, TIMEOUT).await.map_err(ConvertError::Call)?;
        read(version, &uid, webhooks::decoded(&answered)?)
    }
}

/// The converted objects of a good answer.
fn read(version: &str, uid: &str, mut review: Value) -> Result<Vec<Value>, ConvertError> {
    let wanted = format!("{GROUP}/{version}");
    let (api_version, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
    if api_version != wanted || kind != "ConversionReview" {
        let got = if api_version.is_empty() { "/" } else { api_version };
        return Err(ConvertError::Review { wanted, got: got.to_string(), kind: kind.to_string() });
    }
    let response = &mut review["response"];
    if !response.is_object() {
        return Err(ConvertError::NoResponse);
    }
    if version == "v1" && response["uid"] != uid {
        return Err(ConvertError::Uid { expected: uid.into(), found: text(&response["uid"]).into() });
    }
    let result = &response["result"];
    if result["status"] != "Success" {
        return Err(match text(&result["message"]) {
            "" => ConvertError::NoSuccess(text(&result["status"]).to_string()),
            message => ConvertError::Refused(message.to_string()),
        });
    }
    match response["convertedObjects"].take() {
        Value::Array(objects) => Ok(objects),
        _ => Ok(Vec::new()),
    }
}

/// The same object in another version: of its metadata only labels and annotations may be others.
fn check(original: &Value, mut converted: Value, desired: &str) -> Result<Value, ConvertedError> {
    if converted["apiVersion"] != desired {
        let found = text(&converted["apiVersion"]).to_string();
        return Err(ConvertedError::Version { expected: desired.to_string(), found });
    }
    let kinds = (text(&original["kind"]), text(&converted["kind"]));
    for (what, expected, found) in [
        ("kind", kinds.0, kinds.1),
        ("name", original.name(), converted.name()),
        ("namespace", original.namespace(), converted.namespace()),
        ("UID", original.uid(), converted.uid()),
    ] {
        if expected != found {
            return Err(ConvertedError::Changed { what, expected: expected.into(), found: found.into() });
        }
    }
    if !converted["metadata"].is_object() {
        return Err(ConvertedError::NoMetadata);
    }
    let mut metadata = original["metadata"].clone();
    for field in ["labels", "annotations"] {
        let given = converted["metadata"][field].take();
        let texts = given.as_object().is_some_and(|map| map.values().all(Value::is_string));
        match (texts, given.is_null(), metadata.as_object_mut()) {
            (true, _, Some(map)) => drop(map.insert(field.into(), given)),
            (_, true, Some(map)) => drop(map.remove(field)),
            _ => return Err(ConvertedError::Metadata(field)),
        }
    }
    converted["metadata"] = metadata;
    Ok(converted)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_is_the_same_object() {
        let original = json!({"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "n", "uid": "u", "generation": 3,
            "labels": {"old": "1"}}});
        let check_with = |change: fn(&mut Value), expected: Result<Value, &str>| {
            let mut converted = original.clone();
            converted["apiVersion"] = "a/v2".into();
            change(&mut converted);
            let found = check(&original, converted, "a/v2").map(|object| object["metadata"].clone());
            assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(String::from));
        };
        let changed = json!({"name": "n", "uid": "u", "generation": 3, "labels": {"new": "2"}});
        let change = |object: &mut Value| {
            object["metadata"]["labels"] = json!({"new": "2"});
            object["metadata"]["generation"] = 9.into();
        };
        check_with(change, Ok(changed));
        let version = "invalid groupVersion (expected a/v2, received a/v1)";
        check_with(|object| object["apiVersion"] = "a/v1".into(), Err(version));
        check_with(|object| object["kind"] = "L".into(), Err("must have the same kind: K != L"));
        check_with(|object| object["metadata"]["name"] = "m".into(), Err("must have the same name: n != m"));
        check_with(|object| object["metadata"]["uid"] = "v".into(), Err("must have the same UID: u != v"));
        let labels = "invalid metadata.labels in converted object";
        check_with(|object| object["metadata"]["labels"] = json!({"a": 1}), Err(labels));
    }

    #[test]
    fn answers_are_read_in_upstreams_words() {
        let check = |response: Value, expected: Result<usize, &str>| {
            let review =
                json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": response});
            let found = read("v1", "u", review).map(|objects| objects.len());
            assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(String::from));
        };
        check(Value::Null, Err("no response provided"));
        check(json!({"uid": "x"}), Err("expected response.uid=\"u\", got \"x\""));
        check(json!({"uid": "u", "result": {"status": "Failed", "message": "no"}}), Err("no"));
        check(json!({"uid": "u"}), Err("response.result.status was '', not 'Success'"));
        check(json!({"uid": "u", "result": {"status": "Success"}, "convertedObjects": [{}, {}]}), Ok(2));
    }
}
