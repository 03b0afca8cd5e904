//! Every path the server answers, with its operations, computed from the table. Which form of OpenAPI they are written
//! in is left to `v2.rs` and `v3.rs`.

use machinery::kind::{Kind, Subresource};

use super::parameters::{self, Parameter};
use crate::resources::{KindRef, Resource, Table};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

pub struct Path {
    pub path: String,
    pub parameters: Vec<Parameter>,
    /// By method, in lower case.
    pub operations: Vec<(&'static str, Operation)>,
}

pub struct Operation {
    pub id: String,
    pub description: String,
    pub tag: String,
    pub action: &'static str,
    /// Group, version and kind of what is read or written.
    pub kind: Option<[String; 3]>,
    pub parameters: &'static [Parameter],
    pub body: Option<Content>,
    pub body_required: bool,
    pub codes: &'static [u16],
    pub answer: Content,
}

/// What a body holds: the name of a definition, or plain text.
#[derive(Clone)]
pub struct Content {
    pub definition: Option<String>,
    pub media: &'static [&'static str],
}

const OBJECT: &[&str] = &["application/json", "application/yaml"];
const OBJECTS: &[&str] = &["application/json", "application/json;stream=watch", "application/yaml"];
const ANYTHING: &[&str] = &["*/*"];
const TEXT: &[&str] = &["text/plain"];
const PATCHES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// Finds the definition of a group, version and kind.
pub type NameOf<'a> = &'a dyn Fn(&str, &str, &str) -> Option<String>;

/// All paths of one group and version, its root included.
pub(crate) fn of_version(table: &Table, group: &str, version: &str, name_of: NameOf) -> Vec<Path> {
    let root = root_of(group, version);
    let mut paths = vec![discovery_path(
        format!("{root}/"),
        format!("get{}APIResources", id_part(group, version)),
        "get available resources",
        tag(group, version),
        "APIResourceList",
    )];
    for resource in table.resources() {
        if resource.kind.group == group && resource.kind.version == version {
            Builder { kind: &resource.kind, custom: is_custom(resource), root: &root, name_of }.paths(&mut paths);
        }
    }
    paths
}

pub fn of_group(group: &str) -> Path {
    let camel = camel(group);
    let id = format!("get{}APIGroup", capital(&camel));
    discovery_path(format!("/apis/{group}/"), id, "get information of a group", camel, "APIGroup")
}

pub(crate) fn of_core_versions() -> Path {
    discovery_path(
        "/api/".into(),
        "getCoreAPIVersions".into(),
        "get available API versions",
        "core".into(),
        "APIVersions",
    )
}

pub(crate) fn of_groups() -> Path {
    discovery_path(
        "/apis/".into(),
        "getAPIVersions".into(),
        "get available API versions",
        "apis".into(),
        "APIGroupList",
    )
}

pub(crate) fn of_server_version() -> Path {
    let mut path = discovery_path(
        "/version/".into(),
        "getCodeVersion".into(),
        "get the version information for this server",
        "version".into(),
        "",
    );
    for (_, operation) in &mut path.operations {
        operation.answer.definition = Some("io.k8s.apimachinery.pkg.version.Info".into());
    }
    path
}

pub(crate) fn root_of(group: &str, version: &str) -> String {
    match group {
        "" => format!("/api/{version}"),
        _ => format!("/apis/{group}/{version}"),
    }
}

fn is_custom(resource: &Resource) -> bool {
    matches!(resource.kind, KindRef::Custom(_))
}

fn discovery_path(path: String, id: String, description: &str, tag: String, answer: &str) -> Path {
    let operation = Operation {
        id,
        description: description.into(),
        tag,
        action: "",
        kind: None,
        parameters: &[],
        body: None,
        body_required: false,
        codes: &[200],
        answer: Content { definition: Some(format!("{META}.{answer}")), media: OBJECT },
    };
    Path { path, parameters: Vec::new(), operations: vec![("get", operation)] }
}

/// `rbac.authorization.k8s.io` as upstream's generated clients know it: `rbacAuthorization`.
fn camel(group: &str) -> String {
    if group.is_empty() {
        return "core".into();
    }
    let mut out = String::new();
    for part in group.trim_end_matches(".k8s.io").split(['.', '-']).filter(|part| !part.is_empty()) {
        if out.is_empty() { out.push_str(part) } else { out.push_str(&capital(part)) }
    }
    out
}

fn tag(group: &str, version: &str) -> String {
    format!("{}_{version}", camel(group))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn id_part(group: &str, version: &str) -> String {
    format!("{}{}", capital(&camel(group)), capital(version))
}

fn article(kind: &str) -> &'static str {
    if kind.starts_with(['A', 'E', 'I', 'O', 'U']) { "an" } else { "a" }
}

/// The paths of one kind.
struct Builder<'a> {
    kind: &'a Kind,
    custom: bool,
    root: &'a str,
    name_of: NameOf<'a>,
}

impl Builder<'_> {
    fn paths(&self, into: &mut Vec<Path>) {
        let kind = self.kind;
        let (base, watch_base) = if kind.namespaced() {
            (format!("{}/namespaces/{{namespace}}/{}", self.root, kind.plural), "/namespaces/{namespace}")
        } else {
            (format!("{}/{}", self.root, kind.plural), "")
        };
        let can = |verb: &str| kind.verbs.contains(&verb);
        let mut push = |path: String, parameters: Vec<Parameter>, operations: Vec<(&'static str, Operation)>| {
            if !operations.is_empty() {
                into.push(Path { path, parameters, operations });
            }
        };
        let scoped = |named: bool, more: &[Parameter]| self.path_parameters(named, more);
        let collection = [
            can("deletecollection").then(|| ("delete", self.delete_collection())),
            can("list").then(|| ("get", self.list(false))),
            can("create").then(|| ("post", self.create())),
        ];
        push(base.clone(), scoped(false, &[parameters::PRETTY]), collection.into_iter().flatten().collect());
        let one = [
            can("delete").then(|| ("delete", self.delete())),
            can("get").then(|| ("get", self.read(None))),
            can("patch").then(|| ("patch", self.patch(None))),
            can("update").then(|| ("put", self.replace(None))),
        ];
        push(format!("{base}/{{name}}"), scoped(true, &[parameters::PRETTY]), one.into_iter().flatten().collect());
        for sub in kind.subresources {
            let path = format!("{base}/{{name}}/{}", sub.name);
            let more = [parameters::of_subresource(sub.name), &[parameters::PRETTY]].concat();
            push(path.clone(), scoped(true, &more), self.subresource(sub, false));
            if sub.name == "proxy" {
                let more = [&[parameters::REST_OF_PATH], parameters::of_subresource(sub.name)].concat();
                push(format!("{path}/{{path}}"), scoped(true, &more), self.subresource(sub, true));
            }
        }
        let list_parameters = [parameters::LIST, &[parameters::PRETTY]].concat();
        if kind.namespaced() && can("list") {
            let everywhere = vec![("get", self.list(true))];
            push(format!("{}/{}", self.root, kind.plural), list_parameters.clone(), everywhere);
        }
        if can("watch") {
            let old = format!("{}/watch{watch_base}/{}", self.root, kind.plural);
            push(old.clone(), scoped(false, &list_parameters), vec![("get", self.watch_list(false))]);
            push(format!("{old}/{{name}}"), scoped(true, &list_parameters), vec![("get", self.watch_one())]);
            if kind.namespaced() {
                let old = format!("{}/watch/{}", self.root, kind.plural);
                push(old, list_parameters, vec![("get", self.watch_list(true))]);
            }
        }
    }

    fn path_parameters(&self, named: bool, more: &[Parameter]) -> Vec<Parameter> {
        let name = named.then(|| Parameter::name_of(self.kind.kind));
        let namespace = self.kind.namespaced().then_some(parameters::NAMESPACE);
        name.into_iter().chain(namespace).chain(more.iter().cloned()).collect()
    }

    /// `readAppsV1NamespacedDeploymentScale`: the verb, where, in which scope, of what.
    fn id(&self, verb: &str, word: &str, end: &str) -> String {
        let kind = self.kind;
        let scope = if kind.namespaced() && !end.ends_with("ForAllNamespaces") { "Namespaced" } else { "" };
        format!("{verb}{}{word}{scope}{}{end}", id_part(kind.group, kind.version), kind.kind)
    }

    fn own(&self) -> Content {
        let kind = self.kind;
        Content { definition: (self.name_of)(kind.group, kind.version, kind.kind), media: OBJECT }
    }

    fn operation(&self, action: &'static str, id: String, description: String) -> Operation {
        let kind = self.kind;
        Operation {
            id,
            description,
            tag: tag(kind.group, kind.version),
            action,
            kind: Some([kind.group.into(), kind.version.into(), kind.kind.into()]),
            parameters: &[],
            body: None,
            body_required: false,
            codes: &[200],
            answer: self.own(),
        }
    }

    fn list(&self, everywhere: bool) -> Operation {
        let id = self.id("list", "", if everywhere { "ForAllNamespaces" } else { "" });
        let definition = self.own().definition.map(|name| format!("{name}List"));
        Operation {
            // Where the path has nothing but the list, the parameters stand with the path.
            parameters: if everywhere { &[] } else { parameters::LIST },
            answer: Content { definition, media: OBJECTS },
            ..self.operation("list", id, format!("list or watch objects of kind {}", self.kind.kind))
        }
    }

    fn watch_list(&self, everywhere: bool) -> Operation {
        let id = self.id("watch", "", if everywhere { "ListForAllNamespaces" } else { "List" });
        let description = format!(
            "watch individual changes to a list of {}. deprecated: use the 'watch' parameter with a list operation instead.",
            self.kind.kind
        );
        self.watched("watchlist", id, description)
    }

    fn watch_one(&self) -> Operation {
        let description = format!(
            "watch changes to an object of kind {}. deprecated: use the 'watch' parameter with a list operation \
             instead, filtered to a single item with the 'fieldSelector' parameter.",
            self.kind.kind
        );
        self.watched("watch", self.id("watch", "", ""), description)
    }

    fn watched(&self, action: &'static str, id: String, description: String) -> Operation {
        let answer = Content { definition: Some(format!("{META}.WatchEvent")), media: OBJECTS };
        Operation { answer, ..self.operation(action, id, description) }
    }

    fn create(&self) -> Operation {
        let description = format!("create {} {}", article(self.kind.kind), self.kind.kind);
        Operation {
            parameters: parameters::WRITE,
            body: Some(Content { media: ANYTHING, ..self.own() }),
            body_required: true,
            codes: &[200, 201, 202],
            ..self.operation("post", self.id("create", "", ""), description)
        }
    }

    fn delete(&self) -> Operation {
        let description = format!("delete {} {}", article(self.kind.kind), self.kind.kind);
        let operation = self.operation("delete", self.id("delete", "", ""), description);
        Operation { parameters: parameters::DELETE, codes: &[200, 202], ..answers_status(operation) }
    }

    fn delete_collection(&self) -> Operation {
        let id = self.id("delete", "Collection", "");
        let description = format!("delete collection of {}", self.kind.kind);
        let operation = self.operation("deletecollection", id, description);
        Operation { parameters: parameters::DELETE_COLLECTION, ..answers_status(operation) }
    }

    fn read(&self, sub: Option<&Subresource>) -> Operation {
        let operation = self.sub_operation("get", "read", "read", sub);
        match sub {
            Some(sub) if sub.name == "log" => {
                Operation { answer: Content { definition: None, media: TEXT }, ..operation }
            }
            _ => operation,
        }
    }

    fn replace(&self, sub: Option<&Subresource>) -> Operation {
        let operation = self.sub_operation("put", "replace", "replace", sub);
        let body = Some(Content { media: ANYTHING, ..operation.answer.clone() });
        Operation { parameters: parameters::WRITE, body, body_required: true, codes: &[200, 201], ..operation }
    }

    fn patch(&self, sub: Option<&Subresource>) -> Operation {
        // Strategic merge needs types that know their merge keys; custom kinds have none.
        let media = if self.custom { &PATCHES[..3] } else { PATCHES };
        Operation {
            parameters: parameters::PATCH,
            body: Some(Content { definition: Some(format!("{META}.Patch")), media }),
            body_required: true,
            codes: &[200, 201],
            ..self.sub_operation("patch", "patch", "partially update", sub)
        }
    }

    fn sub_operation(&self, action: &'static str, verb: &str, words: &str, sub: Option<&Subresource>) -> Operation {
        let Some(sub) = sub else {
            return self.operation(action, self.id(verb, "", ""), format!("{words} the specified {}", self.kind.kind));
        };
        let description = format!("{words} {} of the specified {}", sub.name, self.kind.kind);
        let operation = self.operation(action, self.id(verb, "", &capital(sub.name)), description);
        self.with_kind_of(sub, operation)
    }

    /// What the subresource reads and writes is not always the kind it belongs to.
    fn with_kind_of(&self, sub: &Subresource, operation: Operation) -> Operation {
        let (group, version) = match sub.version {
            "" => (self.kind.group, self.kind.version),
            version => (sub.group, version),
        };
        let definition = (self.name_of)(group, version, sub.kind);
        Operation {
            kind: Some([group.into(), version.into(), sub.kind.into()]),
            answer: Content { definition, ..operation.answer },
            ..operation
        }
    }

    fn subresource(&self, sub: &Subresource, with_path: bool) -> Vec<(&'static str, Operation)> {
        if matches!(sub.name, "exec" | "attach" | "portforward" | "proxy") {
            return self.connect(sub, with_path);
        }
        let operations = sub.verbs.iter().filter_map(|verb| match *verb {
            "get" => Some(("get", self.read(Some(sub)))),
            "update" => Some(("put", self.replace(Some(sub)))),
            "patch" => Some(("patch", self.patch(Some(sub)))),
            "create" => Some(("post", self.create_sub(sub))),
            _ => None,
        });
        operations.collect()
    }

    fn create_sub(&self, sub: &Subresource) -> Operation {
        let description = format!("create {} of {} {}", sub.name, article(self.kind.kind), self.kind.kind);
        let operation = self.operation("post", self.id("create", "", &capital(sub.name)), description);
        let operation = self.with_kind_of(sub, operation);
        Operation {
            parameters: parameters::WRITE,
            body: Some(Content { media: ANYTHING, ..operation.answer.clone() }),
            body_required: true,
            codes: &[200, 201, 202],
            ..operation
        }
    }

    fn connect(&self, sub: &Subresource, with_path: bool) -> Vec<(&'static str, Operation)> {
        let methods: &[&'static str] = match sub.name {
            "proxy" => &["delete", "get", "head", "options", "patch", "post", "put"],
            _ => &["get", "post"],
        };
        let end = format!("{}{}", capital(sub.name), if with_path { "WithPath" } else { "" });
        let operation = |method: &'static str| {
            let id = self.id("connect", &capital(method), &end);
            let description =
                format!("connect {} requests to {} of {}", method.to_uppercase(), sub.name, self.kind.kind);
            let operation = self.with_kind_of(sub, self.operation("connect", id, description));
            (method, Operation { answer: Content { definition: None, media: ANYTHING }, ..operation })
        };
        methods.iter().copied().map(operation).collect()
    }
}

fn answers_status(operation: Operation) -> Operation {
    Operation {
        body: Some(Content { definition: Some(format!("{META}.DeleteOptions")), media: ANYTHING }),
        answer: Content { definition: Some(format!("{META}.Status")), media: OBJECT },
        ..operation
    }
}
