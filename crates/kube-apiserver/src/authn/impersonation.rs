//! Acting as someone else: the `Impersonate-*` headers, each of which needs a permission of the real user.
//!
//! First the constrained way is tried, which needs two kinds of permission: to be that user
//! (`impersonate:<mode>`), and to do this very thing as such a user (`impersonate-on:<mode>:<verb>`).
//! Then the older verb `impersonate`, which allows everything the other user may do; its refusal is what users read.

use std::collections::BTreeMap;

use http::HeaderMap;
use machinery::status::Status;

use super::headers::{extras, texts};
use super::service_account::{groups as account_groups, split_user_name};
use super::{ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, ANONYMOUS, Objects, User};
use crate::authz::{Attributes, Authorizer, forbidden};

const GROUP: &str = "authentication.k8s.io";
const NODE_PREFIX: &str = "system:node:";
/// In the extra of a pod's service account: the node the pod is on.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// Who the headers ask for.
struct Wanted {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// Which constrained verbs apply. A mode other than `UserInfo` only does where nothing but the user name is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    UserInfo,
    ServiceAccount,
    /// The node on which the real user, a pod's service account, runs.
    AssociatedNode,
    ArbitraryNode,
}

/// The user to go on with: `None` where nobody else is asked for, 403 where the real user may not.
/// `request` is what the real user (`request.user`) wants to do as the other one.
pub async fn impersonate(
    headers: &HeaderMap,
    request: &Attributes<'_>,
    authorizer: &Authorizer,
    objects: &dyn Objects,
) -> Result<Option<User>, Status> {
    let Some(wanted) = Wanted::read(headers)? else { return Ok(None) };
    for mode in wanted.modes(request.user) {
        let verb = format!("impersonate:{}", mode.name());
        let action = format!("impersonate-on:{}:{}", mode.name(), request.verb);
        let permissions = wanted.permissions(request.user, &verb, Some(mode));
        let on = Attributes { verb: &action, ..*request };
        if authorizer.allows_all(permissions.iter().chain([&on]), objects).await {
            return Ok(Some(wanted.into_user(Some(mode))));
        }
    }
    for permission in wanted.permissions(request.user, "impersonate", None) {
        let decision = authorizer.authorize(&permission, objects).await;
        if !decision.is_allowed() {
            return Err(forbidden(&permission, decision.reason()));
        }
    }
    Ok(Some(wanted.into_user(None)))
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::UserInfo => "user-info",
            Mode::ServiceAccount => "serviceaccount",
            Mode::AssociatedNode => "associated-node",
            Mode::ArbitraryNode => "arbitrary-node",
        }
    }
}

impl Wanted {
    fn read(headers: &HeaderMap) -> Result<Option<Wanted>, Status> {
        let first = |name: &str| texts(headers, name).next().unwrap_or_default();
        let wanted = Wanted {
            name: first("impersonate-user"),
            uid: first("impersonate-uid"),
            groups: texts(headers, "impersonate-group").collect(),
            extra: extras(headers, "impersonate-extra-"),
        };
        if !wanted.name.is_empty() {
            return Ok(Some(wanted));
        }
        let described = wanted.describe();
        if described.is_empty() {
            return Ok(None);
        }
        Err(Status::internal(format!("requested [{}] without impersonating a user", described.join(" "))))
    }

    fn modes(&self, user: &User) -> Vec<Mode> {
        let only_name = self.uid.is_empty() && self.groups.is_empty() && self.extra.is_empty();
        if split_user_name(&self.name).is_some() {
            return if only_name { vec![Mode::ServiceAccount] } else { Vec::new() };
        }
        let Some(node) = self.name.strip_prefix(NODE_PREFIX) else { return vec![Mode::UserInfo] };
        let is_here = split_user_name(&user.name).is_some()
            && user.extra.get(NODE_NAME).is_some_and(|names| names.as_slice() == [node]);
        match (only_name, is_here) {
            (false, _) => Vec::new(),
            (true, true) => vec![Mode::AssociatedNode, Mode::ArbitraryNode],
            (true, false) => vec![Mode::ArbitraryNode],
        }
    }

    /// What the real user must be allowed, in upstream's order: user, groups, extras, uid.
    /// The constrained verbs hold for one API group, the older one for two.
    fn permissions<'a>(&'a self, user: &'a User, verb: &'a str, mode: Option<Mode>) -> Vec<Attributes<'a>> {
        let core = if mode.is_some() { GROUP } else { "" };
        let may = |group: &'a str, resource: &'a str, name: &'a str| Attributes {
            version: "v1",
            name,
            ..Attributes::resource(user, verb, group, resource)
        };
        let mut needed = vec![match (split_user_name(&self.name), mode) {
            (Some((namespace, name)), _) => Attributes { namespace, ..may(core, "serviceaccounts", name) },
            (None, Some(Mode::AssociatedNode)) => may(core, "nodes", ""),
            (None, Some(Mode::ArbitraryNode)) => may(core, "nodes", &self.name[NODE_PREFIX.len()..]),
            (None, _) => may(core, "users", &self.name),
        }];
        needed.extend(self.groups.iter().map(|group| may(core, "groups", group)));
        for (key, values) in &self.extra {
            let extra = |value: &'a String| Attributes { subresource: key, ..may(GROUP, "userextras", value) };
            needed.extend(values.iter().map(extra));
        }
        if !self.uid.is_empty() {
            needed.push(may(GROUP, "uids", &self.uid));
        }
        needed
    }

    fn into_user(self, mode: Option<Mode>) -> User {
        let mut groups = self.groups;
        if groups.is_empty()
            && let Some((namespace, _)) = split_user_name(&self.name)
        {
            groups = account_groups(namespace);
        }
        if matches!(mode, Some(Mode::AssociatedNode | Mode::ArbitraryNode)) {
            groups.push("system:nodes".into());
        }
        if !groups.iter().any(|group| group == ALL_AUTHENTICATED || group == ALL_UNAUTHENTICATED) {
            let everyone = if self.name == ANONYMOUS { ALL_UNAUTHENTICATED } else { ALL_AUTHENTICATED };
            groups.push(everyone.into());
        }
        User { name: self.name, uid: self.uid, groups, extra: self.extra }
    }

    /// What was asked for besides a user, as upstream prints object references:
    /// kind, namespace, name, uid, version, revision, field.
    fn describe(&self) -> Vec<String> {
        let groups = self.groups.iter().map(|group| format!("{{Group  {group}    }}"));
        let extra = self.extra.iter().flat_map(|(key, values)| {
            values.iter().map(move |value| format!("{{UserExtra  {value}  {GROUP}/v1  {key}}}"))
        });
        let uid = (!self.uid.is_empty()).then(|| format!("{{UID  {}  {GROUP}/v1  }}", self.uid));
        groups.chain(extra).chain(uid).collect()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use serde_json::{Value, json};

    use super::*;
    use crate::authn::fixtures::{Map, headers, user};

    /// `vera` may act as bob and as group dev, with scope `view`; `root` may everything.
    fn objects() -> Map {
        let rule = |group: &str, resource: &str, name: &str| json!({"verbs": ["impersonate"], "apiGroups": [group], "resources": [resource], "resourceNames": [name]});
        let rules = json!([
            rule("", "users", "bob"),
            rule("", "groups", "dev"),
            rule("", "serviceaccounts", "robot"),
            rule(GROUP, "userextras/scope", "view"),
            rule(GROUP, "uids", "7"),
        ]);
        let binding: Value = json!({
            "metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "deputy"},
            "subjects": [{"kind": "User", "name": "vera"}],
        });
        Map::default()
            .with("clusterroles", [json!({"metadata": {"name": "deputy"}, "rules": rules})])
            .with("clusterrolebindings", [binding])
    }

    #[test]
    fn headers_need_permissions() {
        let (objects, authorizer) = (objects(), Authorizer::default());
        let check = |name: &str, lines: &[(&str, &str)], expected: &str| {
            let groups: &[&str] = if name == "root" { &["system:masters"] } else { &[] };
            let user = user(name, groups);
            let request = Attributes::resource(&user, "list", "", "pods");
            let found = impersonate(&headers(lines), &request, &authorizer, &objects).now_or_never();
            let result = match found.expect("nothing is waited for") {
                Ok(None) => "nobody".to_string(),
                Ok(Some(user)) => format!("{} {:?} {:?} {:?}", user.name, user.uid, user.groups, user.extra),
                Err(status) => format!("{} {}", status.code, status.message),
            };
            assert_eq!(result, expected, "{name} {lines:?}");
        };
        check("vera", &[], "nobody");
        check("vera", &[("impersonate-user", "bob")], r#"bob "" ["system:authenticated"] {}"#);
        check(
            "vera",
            &[
                ("impersonate-user", "bob"),
                ("impersonate-group", "dev"),
                ("impersonate-uid", "7"),
                ("impersonate-extra-scope", "view"),
            ],
            r#"bob "7" ["dev", "system:authenticated"] {"scope": ["view"]}"#,
        );
        check(
            "vera",
            &[("impersonate-user", "eve")],
            r#"403 users "eve" is forbidden: User "vera" cannot impersonate resource "users" in API group "" at the cluster scope"#,
        );
        check(
            "vera",
            &[("impersonate-user", "bob"), ("impersonate-group", "system:masters")],
            r#"403 groups "system:masters" is forbidden: User "vera" cannot impersonate resource "groups" in API group "" at the cluster scope"#,
        );
        check(
            "vera",
            &[("impersonate-user", "bob"), ("impersonate-extra-scope", "all")],
            r#"403 userextras.authentication.k8s.io "all" is forbidden: User "vera" cannot impersonate resource "userextras/scope" in API group "authentication.k8s.io" at the cluster scope"#,
        );
        check(
            "vera",
            &[("impersonate-user", "system:serviceaccount:shop:robot")],
            r#"system:serviceaccount:shop:robot "" ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"] {}"#,
        );
        check(
            "root",
            &[("impersonate-user", "system:anonymous")],
            r#"system:anonymous "" ["system:unauthenticated"] {}"#,
        );
        check(
            "root",
            &[("impersonate-group", "dev")],
            "500 Internal error occurred: requested [{Group  dev    }] without impersonating a user",
        );
    }
    #[test]
    fn constrained_impersonation_needs_both_permissions() {
        let rule = |verbs: Value, group: &str, resource: &str| json!({"verbs": verbs, "apiGroups": [group], "resources": [resource]});
        let rules = json!([
            rule(json!(["impersonate:user-info"]), GROUP, "users"),
            rule(json!(["impersonate:serviceaccount"]), GROUP, "serviceaccounts"),
            rule(json!(["impersonate:associated-node"]), GROUP, "nodes"),
            rule(json!(["impersonate-on:user-info:list", "impersonate-on:associated-node:list"]), "", "pods"),
            rule(json!(["impersonate-on:serviceaccount:get"]), "", "pods"),
        ]);
        let agent = "system:serviceaccount:kube-system:agent";
        let binding = json!({
            "metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "deputy"},
            "subjects": [{"kind": "User", "name": agent}],
        });
        let objects = Map::default()
            .with("clusterroles", [json!({"metadata": {"name": "deputy"}, "rules": rules})])
            .with("clusterrolebindings", [binding]);
        let authorizer = Authorizer::default();
        let check = |verb: &str, lines: &[(&str, &str)], expected: Result<&[&str], u16>| {
            let mut user = user(agent, &[]);
            user.extra.insert(NODE_NAME.into(), vec!["n1".into()]);
            let request = Attributes::resource(&user, verb, "", "pods");
            let result = impersonate(&headers(lines), &request, &authorizer, &objects).now_or_never();
            let result = result.expect("nothing is waited for");
            let result = result.map(|user| user.unwrap().groups).map_err(|status| status.code);
            let expected = expected.map(|groups| groups.iter().map(|group| group.to_string()).collect());
            assert_eq!(result, expected, "{verb} {lines:?}");
        };
        check("list", &[("impersonate-user", "bob")], Ok(&["system:authenticated"]));
        check("get", &[("impersonate-user", "bob")], Err(403));
        check("list", &[("impersonate-user", "bob"), ("impersonate-group", "dev")], Err(403));
        let robot = [("impersonate-user", "system:serviceaccount:shop:robot"), ("impersonate-uid", "7")];
        let groups = ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"];
        check("get", &robot[..1], Ok(&groups));
        check("list", &robot[..1], Err(403));
        check("get", &robot, Err(403));
        check("list", &[("impersonate-user", "system:node:n1")], Ok(&["system:nodes", "system:authenticated"]));
        check("list", &[("impersonate-user", "system:node:n2")], Err(403));
    }
}
