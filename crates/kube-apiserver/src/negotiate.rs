//! Content negotiation: JSON or YAML, the object itself, a table, or its metadata only.

use http::HeaderMap;
use http::header::{ACCEPT, ACCEPT_ENCODING, USER_AGENT};
use machinery::codec::protobuf;
use machinery::status::Status;

use crate::query::Query;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    Json,
    Yaml,
    /// For clients that take nothing else, because what is stored is JSON, and for those that want metadata in it.
    Protobuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Object,
    Table,
    Metadata,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub media: Media,
    pub form: Form,
    /// The version of meta.k8s.io for tables and metadata.
    pub meta_version: &'static str,
    pub pretty: bool,
    pub gzip: bool,
}

impl Answer {
    /// What is sent where nothing else was agreed on.
    pub fn json() -> Answer {
        Answer { media: Media::Json, form: Form::Object, meta_version: "v1", pretty: false, gzip: false }
    }
}

/// The form in the Accept header that the client likes best and the server can make. What it cannot make is 406, as
/// upstream.
pub fn negotiate(headers: &HeaderMap, query: &Query) -> Result<Answer, Status> {
    negotiate_among(headers, query, |_| true).ok_or_else(|| {
        let message = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
                       application/vnd.kubernetes.protobuf";
        Status::new(406, "NotAcceptable", message).with_empty_details()
    })
}

/// The same for what is never shown as a table, such as a review.
pub(crate) fn negotiate_without_tables(headers: &HeaderMap, query: &Query) -> Result<Answer, Status> {
    negotiate_among(headers, query, |offer| offer.form != Form::Table).ok_or_else(|| {
        let message = "only the following media types are accepted: application/json, application/yaml, \
                       application/vnd.kubernetes.protobuf";
        Status::new(406, "NotAcceptable", message)
    })
}

fn negotiate_among(headers: &HeaderMap, query: &Query, allowed: fn(&Answer) -> bool) -> Option<Answer> {
    let accept = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(",");
    let mut clauses: Vec<&str> = accept.split(',').map(str::trim).filter(|clause| !clause.is_empty()).collect();
    if clauses.is_empty() {
        clauses.push("application/json");
    }
    clauses.sort_by_key(|clause| std::cmp::Reverse(preference(clause)));
    let offers: Vec<Answer> = clauses.iter().filter_map(|clause| clause_answer(clause)).filter(allowed).collect();
    let first = offers.first()?;
    // The items of a list of metadata say what they are in JSON and do not in protobuf; clients compare them.
    let found = match first.form {
        Form::Metadata => *first,
        Form::Object | Form::Table => *offers.iter().find(|offer| offer.media != Media::Protobuf).unwrap_or(first),
    };
    let encodings = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or("");
    let gzip = encodings.split(',').any(|encoding| {
        let mut parts = encoding.split(';').map(str::trim);
        parts.next() == Some("gzip") && !parts.any(|part| part == "q=0")
    });
    Some(Answer { pretty: pretty(headers, query), gzip, ..found })
}

/// How much a client wants a form, in thousandths, then how precisely it named it. Equals keep the client's order.
fn preference(clause: &str) -> (u32, bool, bool) {
    let mut parts = clause.split(';').map(str::trim);
    let media = parts.next().unwrap_or("");
    let quality = parts.filter_map(|part| part.strip_prefix("q=")).next_back();
    let quality = quality.and_then(|text| text.parse::<f32>().ok()).unwrap_or(1.0);
    ((quality.clamp(0.0, 1.0) * 1000.0) as u32, !media.starts_with("*/"), !media.ends_with("/*"))
}

fn clause_answer(clause: &str) -> Option<Answer> {
    let mut parts = clause.split(';').map(str::trim);
    let media = match parts.next()?.to_ascii_lowercase().as_str() {
        "application/json" | "*/*" | "application/*" => Media::Json,
        "application/yaml" => Media::Yaml,
        protobuf::MEDIA_TYPE => Media::Protobuf,
        _ => return None,
    };
    let (mut form, mut version, mut group) = (Form::Object, "v1", "meta.k8s.io");
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        match (name, value) {
            ("as", "Table") => form = Form::Table,
            ("as", "PartialObjectMetadata" | "PartialObjectMetadataList") => form = Form::Metadata,
            ("as", _) => return None,
            ("v", "v1") => version = "v1",
            ("v", "v1beta1") => version = "v1beta1",
            ("v", _) => return None,
            ("g", value) => group = if value == "meta.k8s.io" { group } else { return None },
            // Watch streams name the framing here; there is one.
            _ => {}
        }
    }
    Some(Answer { media, form, meta_version: version, pretty: false, gzip: false })
}

/// People reading raw answers get them indented, programs do not pay for it.
fn pretty(headers: &HeaderMap, query: &Query) -> bool {
    if query.has("pretty") {
        return query.flag("pretty");
    }
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("");
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|reader| agent.starts_with(reader))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(accept: &str, expected: Option<(Media, Form)>) {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        let found = negotiate(&headers, &Query::default()).ok().map(|answer| (answer.media, answer.form));
        assert_eq!(found, expected, "{accept}");
    }

    #[test]
    fn without_tables_only_the_object_is_offered() {
        let check = |accept: &str, expected: Result<Form, (u16, &str)>| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            let found = negotiate_without_tables(&headers, &Query::default());
            let found = found.map(|answer| answer.form).map_err(|status| (status.code, status.message));
            assert_eq!(found, expected.map_err(|(code, message)| (code, message.to_string())), "{accept}");
        };
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let refused = "only the following media types are accepted: application/json, application/yaml, \
                       application/vnd.kubernetes.protobuf";
        check(table, Err((406, refused)));
        check(&format!("{table},application/json"), Ok(Form::Object));
        check("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", Ok(Form::Metadata));
    }

    #[test]
    fn accept_headers() {
        check("application/json", Some((Media::Json, Form::Object)));
        check("*/*", Some((Media::Json, Form::Object)));
        check("application/vnd.kubernetes.protobuf,application/json", Some((Media::Json, Form::Object)));
        check("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some((Media::Json, Form::Table)));
        check("application/json;as=Table;v=v7;g=meta.k8s.io,application/yaml", Some((Media::Yaml, Form::Object)));
        check("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", Some((Media::Json, Form::Metadata)));
        check("application/vnd.kubernetes.protobuf", Some((Media::Protobuf, Form::Object)));
        let metadata = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        check(
            &format!("application/vnd.kubernetes.protobuf;{metadata},application/json;{metadata},application/json"),
            Some((Media::Protobuf, Form::Metadata)),
        );
        check(
            &format!("application/json;{metadata},application/vnd.kubernetes.protobuf;{metadata}"),
            Some((Media::Json, Form::Metadata)),
        );
        check("text/html", None);
        check("application/json;q=0.1, application/yaml;q=0.9", Some((Media::Yaml, Form::Object)));
        check("application/json;q=0.5, application/yaml", Some((Media::Yaml, Form::Object)));
        check("*/*, application/yaml", Some((Media::Yaml, Form::Object)));
        check("application/yaml;q=nonsense, application/json", Some((Media::Yaml, Form::Object)));
    }
}
