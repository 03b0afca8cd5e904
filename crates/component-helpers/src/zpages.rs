//! `/statusz` and `/flagz`: which program a component is, and with which flags it runs. Text for people; objects of
//! config.k8s.io for programs that ask for them, such as `knarr check --cis`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

/// Names and values. Secrets are never among them: where a flag would hold one, its file is named.
pub type Flags = BTreeMap<String, String>;

const TEXT: &str = "text/plain; charset=utf-8";
/// The version that upstream will no longer serve one day.
const DEPRECATED: &str = "v1alpha1";
const EMULATION: &str = "1.36";
/// What `/version` says, too.
const GO_VERSION: &str = "none (rust)";
/// Paths of the API itself are not what one debugs with.
const PATHS_OF_THE_API: [&str; 5] = ["/apis", "/api", "/openid", "/openapi", "/.well-known"];

/// What a component says of itself.
#[derive(Clone, Debug)]
pub struct Zpages {
    component: &'static str,
    /// Such as `v1.36.4+knarr0.1.0`.
    version: &'static str,
    started: Timestamp,
    flags: Flags,
    /// The first part of every other path that is answered.
    paths: Vec<String>,
}

/// What a client gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub code: u16,
    pub content_type: &'static str,
    /// The header `Warning`, where the version that was asked for is deprecated.
    pub warning: Option<&'static str>,
    pub body: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Statusz,
    Flagz,
}

#[derive(Debug, PartialEq, Eq)]
enum Form<'a> {
    Text,
    Json(&'a str),
    Yaml(&'a str),
}

impl Zpages {
    pub fn new(component: &'static str, version: &'static str, started: Timestamp, flags: Flags) -> Zpages {
        Zpages { component, version, started, flags, paths: Vec::new() }
    }

    /// With the paths that are answered besides.
    pub fn beside<'a>(mut self, paths: impl IntoIterator<Item = &'a str>) -> Zpages {
        let first = |path: &str| path.split('/').nth(1).filter(|part| !part.is_empty()).map(|part| format!("/{part}"));
        self.paths = paths.into_iter().filter_map(first).collect();
        self.paths.retain(|path| !PATHS_OF_THE_API.contains(&path.as_str()));
        self.paths.sort();
        self.paths.dedup();
        self
    }

    pub fn flags(&self) -> &Flags {
        &self.flags
    }

    /// Nothing where the path is another one. `accept` is what the client says of the forms it reads.
    pub fn answer(&self, path: &str, accept: &str, now: Timestamp) -> Option<Page> {
        let kind = match path {
            "/statusz" => Kind::Statusz,
            "/flagz" => Kind::Flagz,
            _ => return None,
        };
        let Some(form) = chosen(kind, accept) else { return Some(not_acceptable()) };
        let object = |version: &str| match kind {
            Kind::Statusz => self.statusz(version, now),
            Kind::Flagz => self.flagz(version),
        };
        let (content_type, version, body) = match (&form, kind) {
            (Form::Text, Kind::Statusz) => (TEXT, "", self.statusz_text(now)),
            (Form::Text, Kind::Flagz) => (TEXT, "", self.flagz_text()),
            (Form::Json(version), _) => ("application/json", *version, format!("{}\n", object(version))),
            (Form::Yaml(version), _) => ("application/yaml", *version, machinery::codec::to_yaml(&object(version))),
        };
        let warning = (version == DEPRECATED).then(|| kind.deprecation());
        Some(Page { code: 200, content_type, warning, body })
    }

    fn statusz(&self, version: &str, now: Timestamp) -> Value {
        json!({
            "kind": "Statusz", "apiVersion": format!("config.k8s.io/{version}"), "metadata": {"name": self.component},
            "startTime": self.started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), "uptimeSeconds": self.uptime(now),
            "goVersion": GO_VERSION, "binaryVersion": self.version.trim_start_matches('v'),
            "emulationVersion": EMULATION, "paths": self.paths,
        })
    }

    fn flagz(&self, version: &str) -> Value {
        json!({
            "kind": "Flagz", "apiVersion": format!("config.k8s.io/{version}"), "metadata": {"name": self.component},
            "flags": self.flags,
        })
    }

    fn statusz_text(&self, now: Timestamp) -> String {
        let up = self.uptime(now);
        let started = self.started.to_zoned(TimeZone::UTC).strftime("%a %b %e %H:%M:%S %Z %Y").to_string();
        let mut text = self.header("statusz");
        text += &format!("\nStarted: {started}\n");
        text += &format!("Up: {} hr {:02} min {:02} sec\n", up / 3600, up / 60 % 60, up % 60);
        text += &format!("Go version: {GO_VERSION}\nBinary version: {}\n", self.version.trim_start_matches('v'));
        text += &format!("Emulation version: {EMULATION}\n");
        if self.paths.is_empty() {
            return text + "\n";
        }
        text + &format!("Paths: {}\n", self.paths.join(" "))
    }

    fn flagz_text(&self) -> String {
        let lines: String = self.flags.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        self.header("flagz") + &lines
    }

    fn header(&self, page: &str) -> String {
        format!(
            "\n{} {page}\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
             guarantees and is for debugging purposes only.\n",
            self.component
        )
    }

    fn uptime(&self, now: Timestamp) -> i64 {
        now.duration_since(self.started).as_secs().max(0)
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Statusz => "Statusz",
            Kind::Flagz => "Flagz",
        }
    }

    fn deprecation(self) -> &'static str {
        match self {
            Kind::Statusz => {
                "299 - \"This version of the statusz endpoint is deprecated. Please use a newer version.\""
            }
            Kind::Flagz => "299 - \"This version of the flagz endpoint is deprecated. Please use a newer version.\"",
        }
    }
}

/// Text, unless the client asks for an object of a version that there is.
fn chosen(kind: Kind, accept: &str) -> Option<Form<'_>> {
    if accept.trim().is_empty() {
        return Some(Form::Text);
    }
    accept.split(',').find_map(|clause| offer(kind, clause))
}

fn offer(kind: Kind, clause: &str) -> Option<Form<'_>> {
    let mut parts = clause.split(';').map(str::trim);
    let media = parts.next()?.to_ascii_lowercase();
    let wanted: BTreeMap<&str, &str> = parts.filter_map(|part| part.split_once('=')).collect();
    let asked = |name: &str| wanted.get(name).copied();
    let structured = || {
        let is_it = asked("as") == Some(kind.name()) && asked("g") == Some("config.k8s.io");
        asked("v").filter(|version| is_it && matches!(*version, "v1alpha1" | "v1beta1"))
    };
    match media.as_str() {
        "text/plain" | "text/*" | "*/*" if asked("as").is_none() => Some(Form::Text),
        "application/json" => structured().map(Form::Json),
        "application/yaml" => structured().map(Form::Yaml),
        _ => None,
    }
}

fn not_acceptable() -> Page {
    let message = "only the following media types are accepted: application/json, application/yaml, text/plain";
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": "NotAcceptable", "code": 406,
    });
    Page { code: 406, content_type: "application/json", warning: None, body: status.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> Zpages {
        let flags = Flags::from([("profiling".to_owned(), "false".to_owned()), ("a".to_owned(), "b: c".to_owned())]);
        let started = Timestamp::from_second(1_800_000_000).unwrap();
        let paths = ["/metrics", "/metrics/slis", "/apis/apps", "/api", "/", "/healthz", "/.well-known/x", "/flagz"];
        Zpages::new("kube-scheduler", "v1.36.4+knarr0.1.0", started, flags).beside(paths)
    }

    fn asked(path: &str, accept: &str) -> Page {
        pages().answer(path, accept, Timestamp::from_second(1_800_003_725).unwrap()).unwrap()
    }

    #[test]
    fn programs_must_say_what_they_read() {
        let check = |path: &str, accept: &str, expected: (u16, &str, bool)| {
            let page = asked(path, accept);
            assert_eq!((page.code, page.content_type, page.warning.is_some()), expected, "{path} {accept}");
        };
        let (json, yaml) = ("application/json", "application/yaml");
        for (path, kind) in [("/flagz", "Flagz"), ("/statusz", "Statusz")] {
            let form = |media: &str, version: &str| format!("{media};as={kind};g=config.k8s.io;v={version}");
            check(path, "", (200, TEXT, false));
            check(path, "application/json, */*", (200, TEXT, false));
            check(path, json, (406, json, false));
            check(path, &form(json, "v1beta1"), (200, json, false));
            check(path, &form(yaml, "v1beta1"), (200, yaml, false));
            check(path, &form(yaml, "v1alpha1"), (200, yaml, true));
            check(path, &form(json, "v1"), (406, json, false));
            check(path, &form("text/plain", "v1beta1"), (406, json, false));
            check(path, "application/json;as=Table;g=meta.k8s.io;v=v1", (406, json, false));
        }
        check("/statusz", "application/json;as=Flagz;g=config.k8s.io;v=v1beta1", (406, json, false));
        assert_eq!(pages().answer("/statusz/x", "", Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn people_read_when_it_started_and_where_to_look_next() {
        let warning = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
            guarantees and is for debugging purposes only.\n";
        let expected = format!(
            "\nkube-scheduler statusz\n{warning}\nStarted: Fri Jan 15 08:00:00 UTC 2027\nUp: 1 hr 02 min 05 sec\n\
             Go version: none (rust)\nBinary version: 1.36.4+knarr0.1.0\nEmulation version: 1.36\n\
             Paths: /flagz /healthz /metrics\n"
        );
        assert_eq!(asked("/statusz", "").body, expected);
        let expected = format!("\nkube-scheduler flagz\n{warning}a=b: c\nprofiling=false\n");
        assert_eq!(asked("/flagz", "text/plain").body, expected);
    }

    #[test]
    fn objects_hold_the_same() {
        let page = asked("/statusz", "application/json;as=Statusz;g=config.k8s.io;v=v1beta1");
        let expected = json!({
            "kind": "Statusz", "apiVersion": "config.k8s.io/v1beta1", "metadata": {"name": "kube-scheduler"},
            "startTime": "2027-01-15T08:00:00Z", "uptimeSeconds": 3725, "goVersion": "none (rust)",
            "binaryVersion": "1.36.4+knarr0.1.0", "emulationVersion": "1.36",
            "paths": ["/flagz", "/healthz", "/metrics"],
        });
        assert_eq!(serde_json::from_str::<Value>(&page.body).unwrap(), expected);
        let page = asked("/flagz", "application/yaml;as=Flagz;g=config.k8s.io;v=v1alpha1");
        assert!(page.body.contains("flags:\n  a: \"b: c\"\n  profiling: \"false\"\n"), "{}", page.body);
        assert!(page.warning.is_some_and(|text| text.contains("flagz endpoint is deprecated")));
    }
}
