//! The query and path parameters of operations, each described once.

use std::borrow::Cow;

#[derive(Clone, Debug)]
pub struct Parameter {
    pub name: &'static str,
    /// `query` or `path`; what stands in the path is required.
    pub place: &'static str,
    /// `string`, `boolean` or `integer`.
    pub ty: &'static str,
    pub description: Cow<'static, str>,
}

impl Parameter {
    const fn query(name: &'static str, ty: &'static str, description: &'static str) -> Parameter {
        Parameter { name, place: "query", ty, description: Cow::Borrowed(description) }
    }

    /// The name of the object, in words of its kind.
    pub fn name_of(kind: &str) -> Parameter {
        Parameter { name: "name", place: "path", ty: "string", description: format!("name of the {kind}").into() }
    }
}

pub const NAMESPACE: Parameter = Parameter {
    name: "namespace",
    place: "path",
    ty: "string",
    description: Cow::Borrowed("object name and auth scope, such as for teams and projects"),
};

/// What follows a proxy's path.
pub(crate) const REST_OF_PATH: Parameter =
    Parameter { name: "path", place: "path", ty: "string", description: Cow::Borrowed("path to the resource") };

pub(crate) const PRETTY: Parameter = Parameter::query(
    "pretty",
    "string",
    "If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a browser or \
     command-line HTTP tool (curl and wget).",
);

pub const DRY_RUN: Parameter = Parameter::query(
    "dryRun",
    "string",
    "When present, indicates that modifications should not be persisted. An invalid or unrecognized dryRun directive \
     will result in an error response and no further processing of the request. Valid values are: - All: all dry run \
     stages will be processed",
);

const FIELD_MANAGER: Parameter = Parameter::query(
    "fieldManager",
    "string",
    "fieldManager is a name associated with the actor or entity that is making these changes. The value must be less \
     than or 128 characters long, and only contain printable characters. This field is required for apply requests \
     (application/apply-patch) but optional for non-apply patch types (JsonPatch, MergePatch, StrategicMergePatch).",
);

pub(crate) const FIELD_VALIDATION: Parameter = Parameter::query(
    "fieldValidation",
    "string",
    "fieldValidation instructs the server on how to handle objects in the request (POST/PUT/PATCH) containing unknown \
     or duplicate fields. Valid values are: - Ignore: unknown fields are silently dropped, and all but the last of \
     duplicate fields are ignored. - Warn: as Ignore, with a warning header for each such field; this is the default. \
     - Strict: the request fails with a BadRequest error that names all unknown and duplicate fields.",
);

const FORCE: Parameter = Parameter::query(
    "force",
    "boolean",
    "Force is going to \"force\" Apply requests. It means user will re-acquire conflicting fields owned by other \
     people. Force flag must be unset for non-apply patch requests.",
);

const CONTINUE: Parameter = Parameter::query(
    "continue",
    "string",
    "The continue option should be set when retrieving more results from the server, to the value of the previous \
     answer and with otherwise identical query parameters. A value that has expired is answered with 410 \
     ResourceExpired and a token to continue with. This field is not supported when watch is true.",
);

const FIELD_SELECTOR: Parameter = Parameter::query(
    "fieldSelector",
    "string",
    "A selector to restrict the list of returned objects by their fields. Defaults to everything.",
);

const LABEL_SELECTOR: Parameter = Parameter::query(
    "labelSelector",
    "string",
    "A selector to restrict the list of returned objects by their labels. Defaults to everything.",
);

const LIMIT: Parameter = Parameter::query(
    "limit",
    "integer",
    "limit is a maximum number of responses to return for a list call. If more items exist, the server will set the \
     `continue` field on the list metadata to a value that can be used with the same initial query to retrieve the \
     next set of results. This field is not supported if watch is true.",
);

const RESOURCE_VERSION: Parameter = Parameter::query(
    "resourceVersion",
    "string",
    "resourceVersion sets a constraint on what resource versions a request may be served from. See \
     https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions for details.\n\nDefaults to unset",
);

const RESOURCE_VERSION_MATCH: Parameter = Parameter::query(
    "resourceVersionMatch",
    "string",
    "resourceVersionMatch determines how resourceVersion is applied to list calls. It is highly recommended that \
     resourceVersionMatch be set for list calls where resourceVersion is set See \
     https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions for details.\n\nDefaults to unset",
);

const SEND_INITIAL_EVENTS: Parameter = Parameter::query(
    "sendInitialEvents",
    "boolean",
    "`sendInitialEvents=true` may be set together with `watch=true`. In that case, the watch stream begins with \
     synthetic events for the current objects, then a bookmark with the annotation \
     `\"k8s.io/initial-events-end\": \"true\"`, then changes as usual. `resourceVersionMatch` must be set too.",
);

const TIMEOUT_SECONDS: Parameter = Parameter::query(
    "timeoutSeconds",
    "integer",
    "Timeout for the list/watch call. This limits the duration of the call, regardless of any activity or inactivity.",
);

const WATCH: Parameter = Parameter::query(
    "watch",
    "boolean",
    "Watch for changes to the described resources and return them as a stream of add, update, and remove \
     notifications. Specify resourceVersion.",
);

const ALLOW_WATCH_BOOKMARKS: Parameter = Parameter::query(
    "allowWatchBookmarks",
    "boolean",
    "allowWatchBookmarks requests watch events with type \"BOOKMARK\". Clients should not assume bookmarks are \
     returned at any specific interval. If this is not a watch, this field is ignored.",
);

const GRACE_PERIOD_SECONDS: Parameter = Parameter::query(
    "gracePeriodSeconds",
    "integer",
    "The duration in seconds before the object should be deleted. Value must be non-negative integer. The value zero \
     indicates delete immediately. If this value is nil, the default grace period for the specified type will be used.",
);

const ORPHAN_DEPENDENTS: Parameter = Parameter::query(
    "orphanDependents",
    "boolean",
    "Deprecated: please use the PropagationPolicy. Should the dependent objects be orphaned. Either this field or \
     PropagationPolicy may be set, but not both.",
);

const PROPAGATION_POLICY: Parameter = Parameter::query(
    "propagationPolicy",
    "string",
    "Whether and how garbage collection will be performed. Either this field or OrphanDependents may be set, but not \
     both. Acceptable values are: 'Orphan' - orphan the dependents; 'Background' - allow the garbage collector to \
     delete the dependents in the background; 'Foreground' - a cascading policy that deletes all dependents in the \
     foreground.",
);

pub const LIST: &[Parameter] = &[
    ALLOW_WATCH_BOOKMARKS,
    CONTINUE,
    FIELD_SELECTOR,
    LABEL_SELECTOR,
    LIMIT,
    RESOURCE_VERSION,
    RESOURCE_VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    TIMEOUT_SECONDS,
    WATCH,
];

pub(crate) const WRITE: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
pub const PATCH: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE];
pub const DELETE: &[Parameter] = &[DRY_RUN, GRACE_PERIOD_SECONDS, ORPHAN_DEPENDENTS, PROPAGATION_POLICY];

pub(crate) const DELETE_COLLECTION: &[Parameter] = &[
    CONTINUE,
    DRY_RUN,
    FIELD_SELECTOR,
    GRACE_PERIOD_SECONDS,
    LABEL_SELECTOR,
    LIMIT,
    ORPHAN_DEPENDENTS,
    PROPAGATION_POLICY,
    RESOURCE_VERSION,
    RESOURCE_VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    TIMEOUT_SECONDS,
];

/// The options of subresources that are no objects.
pub fn of_subresource(name: &str) -> &'static [Parameter] {
    match name {
        "log" => LOG,
        "exec" => EXEC,
        "attach" => ATTACH,
        "portforward" => PORT_FORWARD,
        "proxy" => PROXY,
        _ => &[],
    }
}

const CONTAINER: Parameter = Parameter::query(
    "container",
    "string",
    "The container of the pod. Defaults to the only container if there is one container in the pod.",
);
const STDIN: Parameter =
    Parameter::query("stdin", "boolean", "Redirect the standard input stream of the pod for this call.");
const STDOUT: Parameter =
    Parameter::query("stdout", "boolean", "Redirect the standard output stream of the pod for this call.");
const STDERR: Parameter =
    Parameter::query("stderr", "boolean", "Redirect the standard error stream of the pod for this call.");
const TTY: Parameter = Parameter::query(
    "tty",
    "boolean",
    "TTY if true indicates that a tty will be allocated for the call. Defaults to false.",
);
const COMMAND: Parameter = Parameter::query(
    "command",
    "string",
    "Command is the remote command to execute. argv array. Not executed within a shell.",
);

const EXEC: &[Parameter] = &[COMMAND, CONTAINER, STDERR, STDIN, STDOUT, TTY];
const ATTACH: &[Parameter] = &[CONTAINER, STDERR, STDIN, STDOUT, TTY];
const PORT_FORWARD: &[Parameter] =
    &[Parameter::query("ports", "integer", "List of ports to forward. Required when using WebSockets.")];
const PROXY: &[Parameter] =
    &[Parameter::query("path", "string", "Path is the URL path to use for the current proxy request.")];

const LOG: &[Parameter] = &[
    CONTAINER,
    Parameter::query("follow", "boolean", "Follow the log stream of the pod. Defaults to false."),
    Parameter::query(
        "insecureSkipTLSVerifyBackend",
        "boolean",
        "insecureSkipTLSVerifyBackend indicates that the apiserver should not confirm the validity of the serving \
         certificate of the backend it is connecting to.",
    ),
    Parameter::query(
        "limitBytes",
        "integer",
        "If set, the number of bytes to read from the server before terminating the log output.",
    ),
    Parameter::query("previous", "boolean", "Return previous terminated container logs. Defaults to false."),
    Parameter::query(
        "sinceSeconds",
        "integer",
        "A relative time in seconds before the current time from which to show logs.",
    ),
    Parameter::query(
        "stream",
        "string",
        "Specify which container log stream to return to the client. Acceptable values are \"All\", \"Stdout\" and \
         \"Stderr\".",
    ),
    Parameter::query("tailLines", "integer", "If set, the number of lines from the end of the logs to show."),
    Parameter::query(
        "timestamps",
        "boolean",
        "If true, add an RFC3339 or RFC3339Nano timestamp at the beginning of every line of log output.",
    ),
];
