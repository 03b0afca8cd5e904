//! Builds the routing table from Ingresses, Services, EndpointSlices and Secrets.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::networking::v1::{Ingress, IngressBackend, IngressClass, IngressServiceBackend};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use reconcile::Key;
use regex::{Regex, RegexBuilder};

use super::{Backend, Host, Matcher, Problem, Protocol, Route, Settings, Table};
use crate::CONTROLLER;
use crate::certificates::SecretFault;

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const DEFAULT_CLASS_ANNOTATION: &str = "ingressclass.kubernetes.io/is-default-class";
/// The memory that a pattern may need.
const PATTERN_SIZE_MAX: usize = 1 << 20;

/// What a table is made of.
pub struct Objects<'a> {
    pub ingresses: &'a [Arc<Ingress>],
    pub classes: &'a [Arc<IngressClass>],
    pub service: &'a dyn Fn(&Key) -> Option<Arc<Service>>,
    /// What is wrong with the certificate in a Secret.
    pub secret_fault: &'a dyn Fn(&Key) -> Option<SecretFault>,
}

/// Whether an Ingress is for us: by its class, by the annotation that was there before classes, or because it names none and
/// ours is the default.
pub fn is_ours(ingress: &Ingress, classes: &[Arc<IngressClass>]) -> bool {
    let named = |name: &str| classes.iter().find(|class| class.metadata.name.as_deref() == Some(name));
    let ours =
        |class: &IngressClass| class.spec.as_ref().and_then(|spec| spec.controller.as_deref()) == Some(CONTROLLER);
    if let Some(name) = annotation(&ingress.metadata, CLASS_ANNOTATION) {
        return named(name).is_some_and(|class| ours(class));
    }
    match ingress.spec.as_ref().and_then(|spec| spec.ingress_class_name.as_deref()) {
        Some(name) => named(name).is_some_and(|class| ours(class)),
        None => {
            let is_default =
                |class: &&Arc<IngressClass>| annotation(&class.metadata, DEFAULT_CLASS_ANNOTATION) == Some("true");
            // Of several defaults the newest is meant, as it is when the API server fills the class in.
            let newest = classes.iter().filter(is_default).max_by_key(|class| {
                (class.metadata.creation_timestamp.as_ref().map(|time| time.0), std::cmp::Reverse(&class.metadata.name))
            });
            newest.is_some_and(|class| ours(class))
        }
    }
}

pub fn build(objects: &Objects) -> Table {
    let mut ours: Vec<&Arc<Ingress>> =
        objects.ingresses.iter().filter(|ingress| is_ours(ingress, objects.classes)).collect();
    // The older one has the first word.
    ours.sort_by_cached_key(|ingress| {
        (ingress.metadata.creation_timestamp.as_ref().map(|time| time.0), Key::of(&ingress.metadata))
    });
    let mut builder = Builder { objects, table: Table::default(), hosts: BTreeMap::new(), backends: BTreeMap::new() };
    for ingress in ours {
        builder.add(ingress);
    }
    builder.finish()
}

struct Builder<'a> {
    objects: &'a Objects<'a>,
    table: Table,
    hosts: BTreeMap<String, HostBuilder>,
    backends: BTreeMap<Backend, usize>,
}

#[derive(Default)]
struct HostBuilder {
    tls: bool,
    /// By type and path; what is there already is older and stays.
    paths: BTreeMap<(Kind, String), Arc<Route>>,
    default: Option<Arc<Route>>,
}

/// In the order in which paths of one length are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Exact,
    Prefix,
    Pattern,
}

impl Builder<'_> {
    fn add(&mut self, ingress: &Ingress) {
        let key = Key::of(&ingress.metadata);
        self.table.ingresses.insert(key.clone());
        let annotations = ingress.metadata.annotations.clone().unwrap_or_default();
        let (settings, problems) = Settings::read(&annotations);
        for message in problems {
            self.problem(&key, "Annotation", message);
        }
        let settings = Arc::new(settings);
        let Some(spec) = &ingress.spec else { return };
        let default = spec.default_backend.as_ref().map(|backend| self.route(&key, backend, &settings, None));
        for rule in spec.rules.as_deref().unwrap_or_default() {
            let host = rule.host.as_deref().unwrap_or_default().to_ascii_lowercase();
            let paths = rule.http.as_ref().map(|http| http.paths.as_slice()).unwrap_or_default();
            for path in paths {
                let text = path.path.as_deref().filter(|text| !text.is_empty()).unwrap_or("/");
                self.path(&key, &host, text, &path.path_type, &path.backend, &settings);
            }
            let entry = self.hosts.entry(host).or_default();
            if entry.default.is_none() {
                entry.default = default.clone();
            }
        }
        if let Some(default) = default {
            self.hosts.entry(String::new()).or_default().default.get_or_insert(default);
        }
        self.tls(&key, ingress);
    }

    fn path(
        &mut self,
        key: &Key,
        host: &str,
        path: &str,
        path_type: &str,
        backend: &IngressBackend,
        settings: &Arc<Settings>,
    ) {
        let wants_pattern = settings.use_regex || settings.rewrite_target.is_some();
        let (kind, path) = match path_type {
            "Exact" => (Kind::Exact, path),
            "Prefix" => (Kind::Prefix, path.trim_end_matches('/')),
            // What it means is ours to say: a pattern where the annotations speak of patterns, else a prefix.
            _ if wants_pattern && path.contains(['(', '[', '.', '*', '+', '?', '|', '$', '^', '\\']) => {
                (Kind::Pattern, path)
            }
            _ => (Kind::Prefix, path.trim_end_matches('/')),
        };
        let pattern = match kind {
            Kind::Pattern => match compile(path) {
                Ok(pattern) => Some(pattern),
                Err(error) => {
                    return self.problem(key, "InvalidPath", format!("path {path:?} is not a valid pattern: {error}"));
                }
            },
            _ => None,
        };
        let route = self.route(key, backend, settings, pattern);
        let entry = self.hosts.entry(host.to_owned()).or_default();
        let place = (kind, path.to_owned());
        match entry.paths.get(&place) {
            None => _ = entry.paths.insert(place, route),
            Some(older) => {
                let owner = older.ingress.clone();
                let host = if host.is_empty() { "*" } else { host };
                let shown = if path.is_empty() { "/" } else { path };
                self.problem(key, "Conflict", format!("path {shown} of host {host} belongs to Ingress {owner}"));
            }
        }
    }

    fn route(
        &mut self,
        key: &Key,
        backend: &IngressBackend,
        settings: &Arc<Settings>,
        pattern: Option<Regex>,
    ) -> Arc<Route> {
        let service = backend.service.as_ref().map(|service| service.name.clone()).unwrap_or_default();
        let found = match &backend.service {
            Some(named) => self.backend(key, named, settings.protocol),
            None => Err(("Backend", "only Services are supported as backends".to_owned())),
        };
        let backend = match found {
            Ok(backend) => {
                let next = self.backends.len();
                Some(*self.backends.entry(backend).or_insert(next))
            }
            Err((reason, message)) => {
                self.problem(key, reason, message);
                None
            }
        };
        let number = self.table.routes.len();
        self.table.routes.push((key.clone(), service.clone()));
        Arc::new(Route { number, ingress: key.clone(), service, backend, settings: settings.clone(), pattern })
    }

    fn backend(
        &mut self,
        ingress: &Key,
        named: &IngressServiceBackend,
        protocol: Option<Protocol>,
    ) -> Result<Backend, (&'static str, String)> {
        let key = Key::new(ingress.namespace.clone(), named.name.clone());
        self.table.services.insert(key.clone());
        let service = (self.objects.service)(&key);
        let service = service.ok_or_else(|| ("ServiceNotFound", format!("service {:?} not found", key.to_string())))?;
        let spec = service.spec.clone().unwrap_or_default();
        if spec.type_.as_deref() == Some("ExternalName") {
            return Err((
                "Backend",
                format!("service {:?} is of type ExternalName, which has no endpoints", key.to_string()),
            ));
        }
        let wanted = named.port.clone().unwrap_or_default();
        let matches = |port: &&ServicePort| match (&wanted.name, wanted.number) {
            (Some(name), _) if !name.is_empty() => port.name.as_ref() == Some(name),
            (_, number) => number == Some(port.port),
        };
        let ports = spec.ports.unwrap_or_default();
        let Some(port) = ports.iter().find(matches) else {
            let text = wanted.name.unwrap_or_else(|| wanted.number.unwrap_or_default().to_string());
            return Err(("PortNotFound", format!("service {:?} has no port {text:?}", key.to_string())));
        };
        let protocol = protocol.unwrap_or_else(|| app_protocol(port, &service.metadata));
        Ok(Backend { service: key, port: port.name.clone().unwrap_or_default(), protocol })
    }

    fn tls(&mut self, key: &Key, ingress: &Ingress) {
        let spec = ingress.spec.clone().unwrap_or_default();
        for tls in spec.tls.unwrap_or_default() {
            let mut hosts = tls.hosts.unwrap_or_default();
            if hosts.is_empty() {
                let rules = spec.rules.as_deref().unwrap_or_default();
                hosts = rules.iter().filter_map(|rule| rule.host.clone()).collect();
            }
            let hosts: Vec<String> = hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
            for host in &hosts {
                // A host that only a wildcard rule has keeps its way there: an entry of its own would hide it.
                if let Some(entry) = self.hosts.get_mut(host) {
                    entry.tls = true;
                }
            }
            let Some(name) = tls.secret_name.filter(|name| !name.is_empty()) else { continue };
            let secret = Key::new(key.namespace.clone(), name);
            self.table.secrets.insert(secret.clone());
            if let Some(fault) = (self.objects.secret_fault)(&secret) {
                self.problem(key, "Certificate", format!("secret {:?} {fault}", secret.to_string()));
                continue;
            }
            for host in hosts {
                self.table.certificates.entry(host).or_insert_with(|| secret.clone());
            }
        }
    }

    fn problem(&mut self, ingress: &Key, reason: &'static str, message: String) {
        let problem = Problem { ingress: ingress.clone(), reason, message };
        if !self.table.problems.contains(&problem) {
            self.table.problems.push(problem);
        }
    }

    fn finish(mut self) -> Table {
        for (name, builder) in self.hosts {
            let host = builder.finish();
            match name.strip_prefix("*.") {
                Some(rest) => _ = self.table.wildcards.insert(rest.to_owned(), host),
                None if name.is_empty() => self.table.any = host,
                None => _ = self.table.hosts.insert(name, host),
            }
        }
        let mut backends: Vec<(Backend, usize)> = self.backends.into_iter().collect();
        backends.sort_by_key(|(_, place)| *place);
        self.table.backends = backends.into_iter().map(|(backend, _)| backend).collect();
        self.table
    }
}

impl HostBuilder {
    fn finish(self) -> Host {
        let mut host = Host { tls: self.tls, default: self.default, ..Host::default() };
        let mut others: Vec<(usize, Kind, Matcher, Arc<Route>)> = Vec::new();
        for ((kind, path), route) in self.paths {
            let length = path.len();
            let matcher = match (kind, &route.pattern) {
                (Kind::Exact, _) => {
                    host.exact.insert(path, route);
                    continue;
                }
                (_, Some(pattern)) => Matcher::Pattern(pattern.clone()),
                _ => Matcher::Prefix(path),
            };
            others.push((length, kind, matcher, route));
        }
        // Stable, so what was in the order of paths stays so.
        others.sort_by_key(|(length, kind, ..)| (std::cmp::Reverse(*length), *kind));
        host.others = others.into_iter().map(|(_, _, matcher, route)| (matcher, route)).collect();
        host
    }
}

/// The last line of what the parser says, which names the fault; those before it show the place.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct InvalidPattern(String);

/// As nginx does it: from the beginning of the path, whatever the case of its letters.
fn compile(path: &str) -> Result<Regex, InvalidPattern> {
    let pattern = RegexBuilder::new(&format!("^{}", path.trim_start_matches('^')))
        .case_insensitive(true)
        .size_limit(PATTERN_SIZE_MAX)
        .build();
    pattern.map_err(|error| InvalidPattern(error.to_string().lines().last().unwrap_or_default().to_owned()))
}

/// What a Service says of its port.
fn app_protocol(port: &ServicePort, service: &ObjectMeta) -> Protocol {
    // Before there was a field for it, this annotation of the Service said so.
    let annotated = annotation(service, "ingress.knarr.dev/backend-protocol");
    match port.app_protocol.as_deref().or(annotated).map(str::to_ascii_lowercase).as_deref() {
        Some("kubernetes.io/h2c" | "h2c" | "grpc" | "http2") => Protocol::H2c,
        Some("https" | "kubernetes.io/wss") => Protocol::Https,
        Some("grpcs" | "h2") => Protocol::H2,
        _ => Protocol::Http,
    }
}

fn annotation<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(name).map(String::as_str)
}
