//! What annotations of an Ingress ask for. They are those of ingress-nginx that people have on their Ingresses, under its
//! prefix or ours. What would protect something and is not understood here makes the Ingress unserved rather than unprotected.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use ipnet::IpNet;

use super::Protocol;

const PREFIXES: [&str; 2] = ["nginx.ingress.kubernetes.io/", "ingress.knarr.dev/"];

/// Annotations that keep somebody out, and that we do not follow.
const PROTECTING: [&str; 8] = [
    "auth-url",
    "auth-type",
    "auth-secret",
    "auth-tls-secret",
    "auth-tls-verify-client",
    "enable-modsecurity",
    "enable-global-auth",
    "satisfy",
];

/// Annotations that change what a request does and that we do not follow.
const UNKNOWN: [&str; 14] = [
    "configuration-snippet",
    "server-snippet",
    "canary",
    "enable-cors",
    "limit-rps",
    "limit-rpm",
    "limit-connections",
    "mirror-target",
    "ssl-passthrough",
    "custom-http-errors",
    "default-backend",
    "server-alias",
    "from-to-www-redirect",
    "upstream-hash-by",
];

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Without TLS, send requests of hosts that have TLS there.
    pub ssl_redirect: bool,
    /// Also of hosts that have none.
    pub force_ssl_redirect: bool,
    /// The largest body of a request; 0 is no limit.
    pub body_limit: Option<u64>,
    pub connect_timeout: Option<Duration>,
    pub read_timeout: Option<Duration>,
    pub send_timeout: Option<Duration>,
    pub rewrite_target: Option<String>,
    pub use_regex: bool,
    /// Empty lets everybody in.
    pub allow: Vec<IpNet>,
    pub deny: Vec<IpNet>,
    pub affinity: Option<Affinity>,
    pub protocol: Option<Protocol>,
    /// Every request is answered with this.
    pub redirect: Option<(StatusCode, String)>,
    /// Where requests for `/` are sent.
    pub app_root: Option<String>,
    /// The host that the backend sees.
    pub upstream_vhost: Option<String>,
    /// Why nothing of this Ingress is served.
    pub refused: Option<String>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            ssl_redirect: true,
            force_ssl_redirect: false,
            body_limit: None,
            connect_timeout: None,
            read_timeout: None,
            send_timeout: None,
            rewrite_target: None,
            use_regex: false,
            allow: Vec::new(),
            deny: Vec::new(),
            affinity: None,
            protocol: None,
            redirect: None,
            app_root: None,
            upstream_vhost: None,
            refused: None,
        }
    }
}

/// A cookie that leads a client to the endpoint it had before.
#[derive(Clone, Debug, PartialEq)]
pub struct Affinity {
    pub cookie: String,
    /// What stands behind the cookie's value.
    pub attributes: String,
}

impl Settings {
    /// What the annotations say, and what is wrong with them.
    pub fn read(annotations: &BTreeMap<String, String>) -> (Settings, Vec<String>) {
        let mut reader = Reader { annotations, problems: Vec::new() };
        let settings = reader.settings();
        (settings, reader.problems)
    }
}

struct Reader<'a> {
    annotations: &'a BTreeMap<String, String>,
    problems: Vec<String>,
}

impl<'a> Reader<'a> {
    fn settings(&mut self) -> Settings {
        let allow = ["whitelist-source-range", "allowlist-source-range"];
        let protecting = PROTECTING.iter().find(|name| self.get(name).is_some_and(|value| value != "false"));
        let mut refused = protecting.map(|name| format!("annotation {name} is not supported, so nothing is served"));
        let mut ranges = |names: &[&str]| {
            let found = names.iter().find_map(|name| Some((*name, self.get(name)?)));
            let (name, text) = found?;
            let read: Result<Vec<IpNet>, NoRange> = text.split(',').map(|one| range(one.trim())).collect();
            match read {
                Ok(ranges) => Some(ranges),
                Err(NoRange(wrong)) => {
                    let message = format!("annotation {name}: {wrong:?} is not a CIDR range");
                    // Letting everybody in because of a typing error is the one thing that must not happen.
                    refused = Some(format!("{message}, so nothing is served"));
                    None
                }
            }
        };
        let allow = ranges(&allow).unwrap_or_default();
        let deny = ranges(&["denylist-source-range"]).unwrap_or_default();
        self.problems.extend(refused.clone());
        for name in UNKNOWN {
            if self.get(name).is_some_and(|value| value != "false") {
                self.problems.push(format!("annotation {name} is not supported and has no effect"));
            }
        }
        let defaults = Settings::default();
        Settings {
            ssl_redirect: self.boolean("ssl-redirect").unwrap_or(defaults.ssl_redirect),
            force_ssl_redirect: self.boolean("force-ssl-redirect").unwrap_or(false),
            body_limit: self.parse("proxy-body-size", "size", size),
            connect_timeout: self.parse("proxy-connect-timeout", "time", time),
            read_timeout: self.parse("proxy-read-timeout", "time", time),
            send_timeout: self.parse("proxy-send-timeout", "time", time),
            rewrite_target: self.get("rewrite-target").map(str::to_owned),
            use_regex: self.boolean("use-regex").unwrap_or(false),
            allow,
            deny,
            affinity: self.affinity(),
            protocol: self.parse("backend-protocol", "protocol that is supported", protocol),
            redirect: self.redirect(),
            app_root: self.get("app-root").filter(|path| path.starts_with('/')).map(str::to_owned),
            upstream_vhost: self.get("upstream-vhost").map(str::to_owned),
            refused,
        }
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        let value = PREFIXES.iter().find_map(|prefix| self.annotations.get(&format!("{prefix}{name}")));
        value.map(|text| text.trim()).filter(|text| !text.is_empty())
    }

    fn parse<T>(&mut self, name: &str, what: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = self.get(name)?;
        let value = read(text);
        if value.is_none() {
            self.problems.push(format!("annotation {name}: {text:?} is not a valid {what}"));
        }
        value
    }

    fn boolean(&mut self, name: &str) -> Option<bool> {
        self.parse(name, "truth value", |text| text.parse().ok())
    }

    fn redirect(&mut self) -> Option<(StatusCode, String)> {
        let code = |text: &str| StatusCode::from_u16(text.parse().ok()?).ok().filter(StatusCode::is_redirection);
        if let Some(to) = self.get("permanent-redirect") {
            let status = self.parse("permanent-redirect-code", "code of a redirect", code);
            return Some((status.unwrap_or(StatusCode::MOVED_PERMANENTLY), to.to_owned()));
        }
        let to = self.get("temporal-redirect")?;
        let status = self.parse("temporal-redirect-code", "code of a redirect", code);
        Some((status.unwrap_or(StatusCode::FOUND), to.to_owned()))
    }

    fn affinity(&mut self) -> Option<Affinity> {
        self.parse("affinity", "affinity that is supported", |text| (text == "cookie").then_some(()))?;
        let cookie = self.get("session-cookie-name").unwrap_or("INGRESSCOOKIE");
        let is_token = cookie.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~!#$&'*+^`|".contains(&byte));
        if !is_token {
            self.problems.push(format!("annotation session-cookie-name: {cookie:?} is not a valid cookie name"));
            return None;
        }
        let plain = |text: &&str| text.bytes().all(|byte| (0x20..0x7f).contains(&byte) && byte != b';');
        let mut attributes = format!("; Path={}", self.get("session-cookie-path").filter(plain).unwrap_or("/"));
        if let Some(domain) = self.get("session-cookie-domain").filter(plain) {
            attributes.push_str(&format!("; Domain={domain}"));
        }
        if let Some(seconds) =
            self.parse("session-cookie-max-age", "number of seconds", |text| text.parse::<u64>().ok())
        {
            attributes.push_str(&format!("; Max-Age={seconds}"));
        }
        if let Some(policy) = self.get("session-cookie-samesite").filter(plain) {
            attributes.push_str(&format!("; SameSite={policy}"));
        }
        if self.boolean("session-cookie-secure").unwrap_or(false) {
            attributes.push_str("; Secure");
        }
        attributes.push_str("; HttpOnly");
        Some(Affinity { cookie: cookie.to_owned(), attributes })
    }
}

/// What is neither an address nor a range of them.
struct NoRange(String);

/// A range, or a single address.
fn range(text: &str) -> Result<IpNet, NoRange> {
    let single = text.parse::<std::net::IpAddr>().map(IpNet::from);
    single.or_else(|_| text.parse::<IpNet>()).map_err(|_| NoRange(text.to_owned()))
}

/// As nginx writes sizes: `8m`, `512k`, `1g`, and 0 for no limit.
fn size(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let (number, factor) = match text.strip_suffix(['k', 'm', 'g']) {
        Some(number) if text.ends_with('k') => (number, 1 << 10),
        Some(number) if text.ends_with('m') => (number, 1 << 20),
        Some(number) => (number, 1 << 30),
        None => (text.as_str(), 1),
    };
    number.trim().parse::<u64>().ok()?.checked_mul(factor)
}

/// A number of seconds, or with a unit: `90`, `90s`, `5m`, `1h`.
fn time(text: &str) -> Option<Duration> {
    let (number, factor) = match text.chars().last()? {
        's' => (&text[..text.len() - 1], 1),
        'm' => (&text[..text.len() - 1], 60),
        'h' => (&text[..text.len() - 1], 3600),
        _ => (text, 1),
    };
    let seconds = number.parse::<u64>().ok()?.checked_mul(factor)?;
    (1..=TIME_MAX_SECONDS).contains(&seconds).then_some(Duration::from_secs(seconds))
}

/// A week; timers need some bound.
const TIME_MAX_SECONDS: u64 = 7 * 24 * 3600;

fn protocol(text: &str) -> Option<Protocol> {
    match text.to_ascii_uppercase().as_str() {
        "HTTP" | "AUTO_HTTP" => Some(Protocol::Http),
        "HTTPS" => Some(Protocol::Https),
        "GRPC" => Some(Protocol::H2c),
        "GRPCS" => Some(Protocol::H2),
        _ => None,
    }
}
