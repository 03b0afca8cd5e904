//! Acting as someone else: the `Impersonate-*` headers, each of which needs a permission of the real user.

use std::collections::BTreeMap;

use http::HeaderMap;
use machinery::status::Status;

use super::headers::{extras, texts};
use super::service_account::{groups as account_groups, split_user_name};
use super::{ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, ANONYMOUS, Objects, User};
use crate::authz::{Attributes, Authorizer, Decision, forbidden};

const GROUP: &str = "authentication.k8s.io";

/// Who the headers ask for.
struct Wanted {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// The user to go on with: `None` where nobody else is asked for, 403 where the real user may not.
pub fn impersonate(
    headers: &HeaderMap,
    user: &User,
    authorizer: &Authorizer,
    objects: &dyn Objects,
) -> Result<Option<User>, Status> {
    let Some(wanted) = Wanted::read(headers)? else { return Ok(None) };
    for permission in wanted.permissions(user) {
        match authorizer.authorize(&permission, objects) {
            Decision::Allow(_) => {}
            Decision::Deny(reason) | Decision::NoOpinion(reason) => return Err(forbidden(&permission, &reason)),
        }
    }
    Ok(Some(wanted.into_user()))
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

    /// What the real user must be allowed, in upstream's order: user, groups, extras, uid.
    fn permissions<'a>(&'a self, user: &'a User) -> Vec<Attributes<'a>> {
        let may = |group: &'a str, resource: &'a str, name: &'a str| Attributes {
            version: "v1",
            name,
            ..Attributes::resource(user, "impersonate", group, resource)
        };
        let mut needed = vec![match split_user_name(&self.name) {
            Some((namespace, name)) => Attributes { namespace, ..may("", "serviceaccounts", name) },
            None => may("", "users", &self.name),
        }];
        needed.extend(self.groups.iter().map(|group| may("", "groups", group)));
        for (key, values) in &self.extra {
            let extra = |value: &'a String| Attributes { subresource: key, ..may(GROUP, "userextras", value) };
            needed.extend(values.iter().map(extra));
        }
        if !self.uid.is_empty() {
            needed.push(may(GROUP, "uids", &self.uid));
        }
        needed
    }

    fn into_user(self) -> User {
        let mut groups = self.groups;
        if groups.is_empty()
            && let Some((namespace, _)) = split_user_name(&self.name)
        {
            groups = account_groups(namespace);
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
            let result = match impersonate(&headers(lines), &user(name, groups), &authorizer, &objects) {
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
}
