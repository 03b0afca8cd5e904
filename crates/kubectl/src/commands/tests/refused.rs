//! Command lines that upstream's kubectl (v1.36.4) refuses before it asks a server, with its words.

use super::*;

/// A line that cannot be read, with the hint at the command's flags.
fn misread(line: &str, command: &str, expected: &str) {
    refuses(line, &format!("{expected}\nSee 'kubectl {command} --help' for usage."));
}

#[test]
fn objects_are_not_made_from_half_words() {
    refuses("create configmap c --from-literal==b", "invalid literal source =b, expected key=value");
    refuses("create configmap c --from-file=k=", "file path for key name k missing");
    refuses("create configmap c --from-file=nope", "error reading nope: no such file or directory");
    refuses("create cronjob c --image=a", "required flag(s) \"schedule\" not set");
    refuses(
        "create ingress i --rule=foo",
        "rule foo is invalid and should be in format host/path=svcname:svcport[,tls[=secret]]",
    );
    refuses(
        "create ingress i --rule=foo.com/bar=svc",
        "rule foo.com/bar=svc is invalid and should be in format host/path=svcname:svcport[,tls[=secret]]",
    );
    refuses(
        "create ingress i --rule=foo.com=svc:80",
        "rule foo.com=svc:80 is invalid and should be in format host/path=svcname:svcport[,tls[=secret]]",
    );
    refuses(
        "create ingress i --rule=a/b=c:1 --annotation=x=y --annotation=z",
        "annotation z is invalid and should be in format key=[value]",
    );
    refuses("create clusterrole r --verb=list --non-resource-url=/logs", "invalid verb: 'list' for nonResourceURL");
    refuses("create pdb p --selector=a=b --min-available=x", "invalid format specified for min-available");
    refuses("create pdb p --selector=a=b --max-unavailable=-1", "invalid format specified for max-unavailable");
    refuses("create pdb p --selector=a=b --min-available=5%%", "invalid format specified for min-available");
    refuses(
        "create service clusterip s --tcp=80:a_b",
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    refuses("create service clusterip s --tcp=99999", "strconv.ParseUint: parsing \"99999\": value out of range");
    refuses("create service externalname s", "required flag(s) \"external-name\" not set");
    refuses("create service externalname s --external-name=-a", "invalid service external name -a");
    misread(
        "create token sa --duration=1x",
        "create token",
        "invalid argument \"1x\" for \"--duration\" flag: time: unknown unit \"x\" in duration \"1x\"",
    );
    refuses("create configmap c --from-file==settings", "key name for file path settings missing");
    refuses("create configmap c --from-file=a=b=c", "key names or file paths cannot contain '='");
    refuses("create ingress i --default-backend=web", "default-backend should be in format servicename:serviceport");
    refuses(
        "create ingress i --default-backend=web:80:1",
        "default-backend should be in format servicename:serviceport",
    );
    refuses("create clusterrole r --verb=get --non-resource-url=logs", "nonResourceURL should start with /");
    refuses(
        "create clusterrole r --verb=get --non-resource-url=/a*b",
        "nonResourceURL only supports wildcard matches when '*' is at the end",
    );
    refuses("create quota q --hard=cpu=1 --scopes=A,,B", "invalid resource quota scope \"\"");
    refuses("create service clusterip s --tcp=80:99999", "must be between 1 and 65535, inclusive");
}

#[test]
fn pods_are_not_made_of_such_flags() {
    refuses("run p --image=i --env=A --dry-run=client", "invalid env: A");
    refuses("run p --image=i --env=1A=b --dry-run=client", "invalid env: 1A=b");
    refuses("run p --image=i --labels=x --dry-run=client", "unexpected label spec: x");
    refuses("run p --image=I --dry-run=client", "Invalid image name \"I\": invalid reference format");
    refuses("debug x --image=i --profile=nope", "unknown profile: nope");
    misread(
        "debug x --image=i --env=A",
        "debug",
        "invalid argument \"A\" for \"--env\" flag: A must be formatted as key=value",
    );
    misread(
        "debug x --copy-to=y --set-image=a",
        "debug",
        "invalid argument \"a\" for \"--set-image\" flag: a must be formatted as key=value",
    );
    refuses(
        "debug x --image=i --custom=nope --profile=legacy",
        "must pass a container spec json file for custom profile: open nope: no such file or directory",
    );
}

#[test]
fn workloads_are_named_and_counted() {
    misread(
        "scale deployment x --replicas=x",
        "scale",
        "invalid argument \"x\" for \"--replicas\" flag: strconv.ParseInt: parsing \"x\": invalid syntax",
    );
    refuses("autoscale deployment x --max=0", "--max=MAXPODS is required and must be at least 1, max: 0");
    misread(
        "rollout status deployment/x --timeout=x",
        "rollout status",
        "invalid argument \"x\" for \"--timeout\" flag: time: invalid duration \"x\"",
    );
    refuses("wait pod/x --for=what", "unrecognized condition: \"what\"");
    refuses("wait pod/x --for=condition", "unrecognized condition: \"condition\"");
    misread(
        "wait pod/x --for=condition=Ready --timeout=1x",
        "wait",
        "invalid argument \"1x\" for \"--timeout\" flag: time: unknown unit \"x\" in duration \"1x\"",
    );
    refuses("wait pod/x --for=jsonpath=", "jsonpath expression cannot be empty");
    refuses("rollout history deployment/x --revision=-1", "revision must be a positive integer: -1");
}

#[test]
fn taints_have_a_key_a_value_and_an_effect() {
    misused(
        "taint nodes n a=b",
        "taint",
        "invalid taint spec: a=b, name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
    );
    misused("taint nodes n a=b:Nope", "taint", "invalid taint effect: Nope, unsupported taint effect");
    misused(
        "taint nodes n a=b:NoSchedule a=b:NoSchedule",
        "taint",
        "duplicated taints with the same key and effect: {a b NoSchedule <nil>}",
    );
    misread("taint nodes n -a:NoSchedule", "taint", "unknown shorthand flag: 'a' in -a:NoSchedule");
    misused(
        "taint nodes n =b:NoSchedule",
        "taint",
        "invalid taint spec: =b:NoSchedule, name part must be non-empty; name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
    );
    misused("taint nodes n a=b=c:NoSchedule", "taint", "invalid taint spec: a=b=c:NoSchedule");
    misused("taint nodes n a=b:c:NoSchedule", "taint", "invalid taint spec: a=b:c:NoSchedule");
    misused(
        "taint nodes n a=-b:NoSchedule",
        "taint",
        "invalid taint spec: a=-b:NoSchedule, a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
    );
}

#[test]
fn nodes_are_named() {
    misused("drain", "drain", "USAGE: drain NODE [flags]");
    misread(
        "drain n --grace-period=x",
        "drain",
        "invalid argument \"x\" for \"--grace-period\" flag: strconv.ParseInt: parsing \"x\": invalid syntax",
    );
    misused("cordon", "cordon", "USAGE: cordon NODE [flags]");
}

#[test]
fn what_is_shown_is_named() {
    misread(
        "get pods -w -o name --ignore-not-found --watch-only x y z --chunk-size=x",
        "get",
        "invalid argument \"x\" for \"--chunk-size\" flag: strconv.ParseInt: parsing \"x\": invalid syntax",
    );
    misread("get pods --sort-by", "get", "flag needs an argument: --sort-by");
    refuses("get --raw=x", "--raw must be a valid URL path: parse \"x\": invalid URI for request");
    misread("get pods --nope", "get", "unknown flag: --nope");
    misread("get pods -z", "get", "unknown shorthand flag: 'z' in -z");
    misread("get -n", "get", "flag needs an argument: 'n' in -n");
    misread("get --namespace", "get", "flag needs an argument: --namespace");
    refuses(
        "logs p --since-time=x",
        "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"",
    );
    refuses("cp nope p:/x", "nope doesn't exist in local filesystem");
    misused("api-resources x", "api-resources", "unexpected arguments: [x]");
    refuses(
        "api-resources -o wrong",
        "unable to match a printer suitable for the output format \"wrong\", allowed formats are: json,kyaml,name,wide,yaml",
    );
    misused("api-versions x", "api-versions", "unexpected arguments: [x]");
    refuses("version x", "extra arguments: [x]");
    misread("version --client -o yaml --short", "version", "unknown flag: --short");
    refuses("events --for=a/b/c", "arguments in resource/name form may not have more than one slash");
}

#[test]
fn changes_are_said_in_full() {
    refuses(
        "delete pod p --cascade=x",
        "invalid cascade value (x). Must be \"background\", \"foreground\", or \"orphan\"",
    );
    misread(
        "delete pod p --timeout=x",
        "delete",
        "invalid argument \"x\" for \"--timeout\" flag: time: invalid duration \"x\"",
    );
    misread("apply -f", "apply", "flag needs an argument: 'f' in -f");
    refuses("config use-context nope", "no context exists with the name: \"nope\"");
    refuses("config unset users.nope.token", "current map key `nope` is invalid");
    refuses("config unset nope", "unable to parse nope after [] at api.Config");
    refuses("kuberc set --section=x", "--section must be \"defaults\", \"aliases\", or \"credentialplugin\", got: x");
    refuses("apply -f x.yaml --force --dry-run=server", "--dry-run=server cannot be used with --force");
    refuses("replace --raw=/x", "must specify one of -f and -k");
}

#[test]
fn programs_are_started_as_they_can() {
    misread(
        "proxy --port=x",
        "proxy",
        "invalid argument \"x\" for \"-p, --port\" flag: strconv.ParseInt: parsing \"x\": invalid syntax",
    );
    misused("completion nope", "completion", "Unsupported shell type \"nope\".");
    refuses("nope", "unknown command \"nope\" for \"kubectl\"\n\nDid you mean this?\n\ttop");
    refuses("--nope", "unknown flag: --nope\nSee 'kubectl --help' for usage.");
}

/// The exit code 1 of `diff` says that something differs.
#[test]
fn a_line_of_diff_that_is_wrong_is_no_difference() {
    for (line, why) in [
        ("diff -f x.yaml --all", "unknown flag: --all"),
        (
            "diff -f x.yaml --concurrency=x",
            "invalid argument \"x\" for \"--concurrency\" flag: strconv.ParseInt: parsing \"x\": invalid syntax",
        ),
        ("diff pod", "Unexpected args: [pod]"),
    ] {
        let ran = Fake::new().run(line);
        let expected = format!("error: {why}\nSee 'kubectl diff -h' for help and examples\n");
        assert_eq!((ran.err, ran.code), (expected, 2), "{line}");
    }
}

#[test]
fn nothing_is_named() {
    for command in ["expose", "apply view-last-applied", "apply set-last-applied", "apply edit-last-applied"] {
        let ran = Fake::new().run(command);
        assert_eq!((ran.err, ran.code), (format!("error: {}\n", crate::commands::NO_RESOURCES), 1), "{command}");
    }
}
