//! The target of a request: path and method parsed into a verb, a resource, a namespace and a name.

use http::Method;
use machinery::status::Status;
use percent_encoding::percent_decode_str;

use crate::query::Query;

/// The parsed request, as authorization and the verbs need it. Empty texts where a part is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    pub verb: Verb,
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// What follows the subresource, for proxies.
    pub rest: String,
    /// Whether the path is that of a resource; otherwise only `verb` means something.
    pub is_resource: bool,
}

impl Target {
    /// Whether the path is one of a resource in a namespace, which `/namespaces/x` is not.
    pub(crate) fn in_namespace(&self) -> bool {
        !self.namespace.is_empty() && self.resource != "namespaces"
    }
}

/// What is to be done. The last five are of paths that are no resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verb {
    /// None that Kubernetes has a word for; only proxies pass it on.
    #[default]
    Unknown,
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    Head,
    Post,
    Put,
    Options,
}

impl Verb {
    /// As roles, policies and logs have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Unknown => "",
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Head => "head",
            Verb::Post => "post",
            Verb::Put => "put",
            Verb::Options => "options",
        }
    }

    /// Whether it changes nothing.
    pub fn reads(self) -> bool {
        matches!(self, Verb::Get | Verb::List | Verb::Watch | Verb::Head)
    }
}

/// Reads a path. Paths that are not below `/api/<version>/` or `/apis/<group>/<version>/` are not resources.
pub fn parse(method: &Method, path: &str, query: &Query) -> Result<Target, Status> {
    let mut parts = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let text = percent_decode_str(part).decode_utf8();
        parts.push(text.map_err(|_| Status::bad_request("the request path is not valid UTF-8"))?.into_owned());
    }
    let (group, version, rest) = match parts.as_slice() {
        [api, version, rest @ ..] if api == "api" && !rest.is_empty() => ("", version.as_str(), rest),
        [apis, group, version, rest @ ..] if apis == "apis" && !rest.is_empty() => {
            (group.as_str(), version.as_str(), rest)
        }
        _ => return Ok(Target { verb: non_resource_verb(method), ..Target::default() }),
    };
    let mut target = Target { group: group.into(), version: version.into(), is_resource: true, ..Target::default() };
    // The old form `/api/v1/watch/...` is still answered.
    let (old_watch, rest) = match rest {
        [watch, rest @ ..] if watch == "watch" && !rest.is_empty() => (true, rest),
        _ => (false, rest),
    };
    fill(&mut target, rest);
    target.verb = verb(method, &mut target, query, old_watch);
    Ok(target)
}

fn fill(target: &mut Target, parts: &[String]) {
    let parts = match parts {
        // `/namespaces/x/pods` is in a namespace; `/namespaces/x`, `/namespaces/x/status` are the namespace itself.
        [namespaces, namespace, rest @ ..] if namespaces == "namespaces" => {
            target.namespace = namespace.clone();
            match rest {
                [] => parts,
                [sub, ..] if sub == "status" || sub == "finalize" => parts,
                _ => rest,
            }
        }
        _ => parts,
    };
    let mut parts = parts.iter();
    let mut next = || parts.next().cloned().unwrap_or_default();
    target.resource = next();
    target.name = next();
    target.subresource = next();
    target.rest = parts.map(|part| format!("/{part}")).collect();
}

fn verb(method: &Method, target: &mut Target, query: &Query, old_watch: bool) -> Verb {
    let one = !target.name.is_empty();
    match method.as_str() {
        "POST" => Verb::Create,
        "PUT" => Verb::Update,
        "PATCH" => Verb::Patch,
        "DELETE" if one => Verb::Delete,
        "DELETE" => Verb::DeleteCollection,
        "GET" | "HEAD" if old_watch || (!one && query.flag("watch")) => Verb::Watch,
        "GET" | "HEAD" if one => Verb::Get,
        "GET" | "HEAD" => Verb::List,
        _ => Verb::Unknown,
    }
}

fn non_resource_verb(method: &Method) -> Verb {
    match method.as_str() {
        "GET" => Verb::Get,
        "HEAD" => Verb::Head,
        "POST" => Verb::Post,
        "PUT" => Verb::Put,
        "PATCH" => Verb::Patch,
        "DELETE" => Verb::Delete,
        "OPTIONS" => Verb::Options,
        _ => Verb::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, path: &str, expected: [&str; 7]) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let target = parse(&method.parse().unwrap(), path, &Query::parse(Some(query))).unwrap();
        let Target { verb, group, version, resource, subresource, namespace, name, .. } = &target;
        let found = [verb.as_str(), group.as_str(), version, resource, subresource, namespace, name];
        assert_eq!(found, expected, "{method} {path}");
    }

    #[test]
    fn paths() {
        check("GET", "/api/v1/pods", ["list", "", "v1", "pods", "", "", ""]);
        check("GET", "/api/v1/pods?watch=true", ["watch", "", "v1", "pods", "", "", ""]);
        check("GET", "/api/v1/watch/pods", ["watch", "", "v1", "pods", "", "", ""]);
        check("GET", "/api/v1/namespaces/a/pods/b/log", ["get", "", "v1", "pods", "log", "a", "b"]);
        check("PUT", "/api/v1/namespaces/a/finalize", ["update", "", "v1", "namespaces", "finalize", "a", "a"]);
        check("GET", "/api/v1/namespaces/a", ["get", "", "v1", "namespaces", "", "a", "a"]);
        check(
            "DELETE",
            "/apis/apps/v1/namespaces/a/deployments",
            ["deletecollection", "apps", "v1", "deployments", "", "a", ""],
        );
        check(
            "PATCH",
            "/apis/apps/v1/namespaces/a/deployments/d%2Fe",
            ["patch", "apps", "v1", "deployments", "", "a", "d/e"],
        );
    }
}
