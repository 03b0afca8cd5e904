//! `kubectl create role` and bindings.

use super::*;

#[test]
fn roles_have_a_rule_for_each_group() {
    makes(
        "create role reader --verb=get,list --verb=get --resource=pods,deployments.apps --resource=pods/log",
        "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: reader
rules:
- apiGroups:
  - \"\"
  resources:
  - pods
  - pods/log
  verbs:
  - get
  - list
- apiGroups:
  - apps
  resources:
  - deployments
  verbs:
  - get
  - list
",
    );
    makes(
        "create role one --verb=get --resource=secrets --resource-name=a --resource-name=b",
        "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: one
rules:
- apiGroups:
  - \"\"
  resourceNames:
  - a
  - b
  resources:
  - secrets
  verbs:
  - get
",
    );
    makes(
        "create role all --verb='*' --verb=get --resource=pods",
        "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: all
rules:
- apiGroups:
  - \"\"
  resources:
  - pods
  verbs:
  - '*'
",
    );
    refuses("create role r --resource=pods", "at least one verb must be specified");
    refuses("create role r --verb=get", "at least one resource must be specified");
}

#[test]
fn cluster_roles_may_name_paths_or_feed_on_others() {
    makes(
        "create clusterrole logs --verb=get --non-resource-url=/logs/*",
        "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: logs
rules:
- nonResourceURLs:
  - /logs/*
  verbs:
  - get
",
    );
    makes(
        "create clusterrole sum --aggregation-rule=a.example/feed=true",
        "
aggregationRule:
  clusterRoleSelectors:
  - matchLabels:
      a.example/feed: \"true\"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: sum
rules: null
",
    );
    refuses("create clusterrole c --verb=get", "one of resource or nonResourceURL must be specified");
    refuses(
        "create clusterrole c --aggregation-rule=a=b --verb=get",
        "aggregation rule must be specified without nonResourceURLs, verbs, resources or resourceNames",
    );
}

#[test]
fn bindings_name_their_subjects() {
    makes(
        "create rolebinding b --clusterrole=admin --user=ann --user=bob --group=team --serviceaccount=ns:robot",
        "
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: b
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: admin
subjects:
- apiGroup: rbac.authorization.k8s.io
  kind: User
  name: ann
- apiGroup: rbac.authorization.k8s.io
  kind: User
  name: bob
- apiGroup: rbac.authorization.k8s.io
  kind: Group
  name: team
- kind: ServiceAccount
  name: robot
  namespace: ns
",
    );
    makes(
        "create clusterrolebinding b --clusterrole=view --group=team",
        "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: b
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: view
subjects:
- apiGroup: rbac.authorization.k8s.io
  kind: Group
  name: team
",
    );
    refuses("create rolebinding b --user=a", "exactly one of clusterrole or role must be specified");
    refuses("create rolebinding b --role=a --clusterrole=b", "exactly one of clusterrole or role must be specified");
    refuses("create rolebinding b --role=a --serviceaccount=robot", "serviceaccount must be <namespace>:<name>");
}
