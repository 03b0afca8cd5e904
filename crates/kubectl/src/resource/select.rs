//! Resolves arguments, files and selectors to objects.

use serde_json::Value;

use super::mapping::{self, Mapping};
use super::{Info, files, flatten};
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::session::{Call, Session};

/// Flags of commands that read manifests.
pub(crate) const FILES: &[Flag] = &[
    Flag::list("filename", "Files, folders or - for standard input.").short('f'),
    Flag::text("kustomize", "", "A folder with a kustomization.").short('k'),
    Flag::switch("recursive", "Look into folders of folders.").short('R'),
];

/// For commands that look into folders of folders by themselves, and build nothing.
pub(crate) const FILES_RECURSIVE: &[Flag] = &[
    Flag::list("filename", "Files, folders or - for standard input.").short('f'),
    Flag::on("recursive", "Look into folders of folders.").short('R'),
];

pub(crate) const SELECTOR: &[Flag] = &[Flag::text("selector", "", "A selector of labels.").short('l')];

#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pub arguments: Vec<String>,
    pub files: Vec<String>,
    pub kustomize: String,
    pub recursive: bool,
    pub selector: String,
    pub fields: String,
    pub all_namespaces: bool,
    pub subresource: String,
    pub chunk: i64,
}

/// What the arguments and files ask for, before anything is fetched.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    Named { mapping: Mapping, name: String },
    List(Mapping),
    Local(Info),
}

impl Query {
    pub(crate) fn from(session: &Session) -> Query {
        let flags = &session.flags;
        let on = |name: &str| flags.has(name) && flags.on(name);
        Query {
            arguments: flags.arguments.clone(),
            files: flags.list("filename"),
            kustomize: flags.text("kustomize").into(),
            recursive: on("recursive"),
            selector: flags.text("selector").into(),
            fields: flags.text("field-selector").into(),
            all_namespaces: on("all-namespaces"),
            subresource: flags.text("subresource").into(),
            chunk: 500,
        }
    }

    pub(crate) fn has_files(&self) -> bool {
        !self.files.is_empty() || !self.kustomize.is_empty()
    }
}

/// Types and names as the user wrote them.
#[derive(Debug, PartialEq)]
enum Words {
    Pairs(Vec<(String, String)>),
    Types(Vec<String>, Vec<String>),
}

fn words(arguments: &[String]) -> Result<Words> {
    if arguments.iter().any(|argument| argument.contains('/')) {
        let mut pairs = Vec::new();
        for argument in arguments {
            let parts: Vec<&str> = argument.split('/').collect();
            match parts[..] {
                [kind, name] if !kind.is_empty() && !name.is_empty() && !kind.contains(',') => {
                    pairs.push((kind.to_string(), name.to_string()));
                }
                [_] => {
                    return Err(Failure::message(format!(
                        "there is no need to specify a resource type as a separate argument when passing arguments in resource/name form (e.g. '{} resource/<resource_name>' instead of '{} resource resource/<resource_name>'",
                        "kubectl get", "kubectl get"
                    )));
                }
                [_, _] => {
                    return Err(Failure::message(
                        "arguments in resource/name form must have a single resource and name",
                    ));
                }
                _ => return Err(Failure::message("arguments in resource/name form may not have more than one slash")),
            }
        }
        return Ok(Words::Pairs(pairs));
    }
    let types = arguments.first().map(|types| types.split(',').map(str::to_string).collect()).unwrap_or_default();
    Ok(Words::Types(types, arguments.iter().skip(1).cloned().collect()))
}

impl Session {
    /// The namespace requests go to; empty for all.
    pub(crate) fn scope(&self, query: &Query) -> Result<String> {
        Ok(if query.all_namespaces { String::new() } else { self.namespace()?.to_string() })
    }

    pub(crate) async fn wanted(&self, query: &Query) -> Result<(Vec<Wanted>, Vec<Failure>)> {
        if query.has_files() {
            if !query.arguments.is_empty() {
                return Err(Failure::message(
                    "when paths, URLs, or stdin is provided as input, you may not specify resource arguments as well",
                ));
            }
            let (infos, failures) = self.local(query).await?;
            return Ok((infos.into_iter().map(Wanted::Local).collect(), failures));
        }
        match words(&query.arguments)? {
            Words::Pairs(pairs) => {
                if !query.selector.is_empty() {
                    return Err(Failure::message("name cannot be provided when a selector is specified"));
                }
                let mut wanted = Vec::new();
                for (kind, name) in pairs {
                    wanted.push(Wanted::Named { mapping: self.mapping(&kind).await?, name });
                }
                Ok((wanted, Vec::new()))
            }
            Words::Types(types, names) => {
                if types.iter().any(String::is_empty) && query.arguments.first().is_some_and(String::is_empty) {
                    return Err(Failure::message("the server doesn't have a resource type \"\""));
                }
                let mut mappings: Vec<Mapping> = Vec::new();
                for kind in &types {
                    for mapping in self.types(kind).await? {
                        if !mappings.contains(&mapping) {
                            mappings.push(mapping);
                        }
                    }
                }
                if names.iter().any(String::is_empty) {
                    return Err(Failure::message("resource name may not be empty"));
                }
                if names.is_empty() {
                    return Ok((mappings.into_iter().map(Wanted::List).collect(), Vec::new()));
                }
                if !query.selector.is_empty() {
                    return Err(Failure::message("name cannot be provided when a selector is specified"));
                }
                if mappings.len() > 1 && types.len() == 1 {
                    return Err(Failure::message("you may only specify a single resource type"));
                }
                let pairs = mappings.iter().flat_map(|mapping| names.iter().map(move |name| (mapping, name)));
                let named = |(mapping, name): (&Mapping, &String)| Wanted::Named {
                    mapping: mapping.clone(),
                    name: name.clone(),
                };
                Ok((pairs.map(named).collect(), Vec::new()))
            }
        }
    }

    /// A type, or all types of a category such as `all`.
    async fn types(&self, text: &str) -> Result<Vec<Mapping>> {
        let is_category = api::KINDS.iter().any(|kind| kind.categories.contains(&text));
        if !is_category {
            match self.mapping(text).await {
                Ok(found) => return Ok(vec![found]),
                Err(unknown) => {
                    let known = self.category(text).await?;
                    return if known.is_empty() { Err(unknown) } else { Ok(known) };
                }
            }
        }
        self.category(text).await
    }

    async fn category(&self, category: &str) -> Result<Vec<Mapping>> {
        let mut found: Vec<Mapping> = Vec::new();
        for mapping in self.discovered(false).await? {
            let is_new = !found.iter().any(|known| known.group == mapping.group && known.plural == mapping.plural);
            if is_new && mapping.categories.iter().any(|known| known == category) && mapping.can("list") {
                found.push(mapping);
            }
        }
        Ok(found)
    }

    /// The objects of files. One whose kind the server does not know is a failure of its own.
    pub(crate) async fn local(&self, query: &Query) -> Result<(Vec<Info>, Vec<Failure>)> {
        if !query.kustomize.is_empty() && !query.files.is_empty() {
            return Err(Failure::message("only one of -f or -k can be specified"));
        }
        let mut documents = Vec::new();
        for path in &query.files {
            if files::is_url(path) {
                documents.extend(files::documents(path, &super::download::of_url(path).await?)?);
            } else {
                documents.extend(files::read(std::slice::from_ref(path), query.recursive)?);
            }
        }
        if !query.kustomize.is_empty() {
            let built = crate::kustomize::build(std::path::Path::new(&query.kustomize))?;
            documents.extend(built.into_iter().map(|object| (query.kustomize.clone(), object)));
        }
        let (mut infos, mut failures) = (Vec::new(), Vec::new());
        for (source, document) in documents {
            for object in flatten(document) {
                match self.local_info(&source, object).await {
                    Ok(info) => {
                        let matches = query.selector.is_empty()
                            || machinery::selector::LabelSelector::parse(&query.selector)
                                .map_err(Failure::of)?
                                .matches_object(&info.object);
                        if matches {
                            infos.push(info);
                        }
                    }
                    Err(failure) => failures.push(failure),
                }
            }
        }
        Ok((infos, failures))
    }

    /// The objects of a text, or the first thing that is wrong with it.
    pub(crate) async fn read_objects(&self, source: &str, bytes: &[u8]) -> Result<Vec<Info>> {
        let mut infos = Vec::new();
        for (source, document) in files::documents(source, bytes)? {
            for object in flatten(document) {
                infos.push(self.local_info(&source, object).await?);
            }
        }
        Ok(infos)
    }

    async fn local_info(&self, source: &str, mut object: Value) -> Result<Info> {
        // Without a server nobody knows which kinds have a namespace, so none is written down.
        let asks_server = !(self.flags.has("local") && self.flags.on("local"));
        if !object.is_object() && self.flags.has("validate") {
            return Err(Failure::message(format!(
                "error validating {source:?}: error validating data: invalid object to validate; if you choose to ignore these errors, turn validation off with --validate=false"
            )));
        }
        let text = |key: &str| object[key].as_str().unwrap_or_default().to_string();
        let (kind, version) = (text("kind"), text("apiVersion"));
        if kind.is_empty() || version.is_empty() {
            if self.flags.has("validate") && !["ignore", "false", "warn"].contains(&self.flags.text("validate")) {
                let missing = match (version.is_empty(), kind.is_empty()) {
                    (true, true) => "[apiVersion not set, kind not set]",
                    (true, false) => "apiVersion not set",
                    _ => "kind not set",
                };
                return Err(Failure::message(format!(
                    "error validating {source:?}: error validating data: {missing}; if you choose to ignore these errors, turn validation off with --validate=false"
                )));
            }
            let missing = if kind.is_empty() { "Kind" } else { "apiVersion" };
            return Err(Failure::message(format!(
                "unable to decode {source:?}: Object '{missing}' is missing in '{object}'"
            )));
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_string();
        let own = object["metadata"]["namespace"].as_str().unwrap_or_default().to_string();
        let Some(mapping) = self.mapping_of_kind(&version, &kind).await? else {
            return Err(Failure::message(format!(
                "resource mapping not found for name: {name:?} namespace: {own:?} from {source:?}: no matches for kind {kind:?} in version {version:?}\nensure CRDs are installed first"
            )));
        };
        let mut namespace = String::new();
        if mapping.namespaced {
            let settings = self.settings()?;
            if settings.namespace_given && !own.is_empty() && own != settings.namespace {
                return Err(Failure::message(format!(
                    "the namespace from the provided object {own:?} does not match the namespace {:?}. You must pass '--namespace={own}' to perform this operation.",
                    settings.namespace
                )));
            }
            namespace = if own.is_empty() { settings.namespace.clone() } else { own };
            if asks_server && (object["metadata"].is_object() || object["metadata"].is_null()) {
                object["metadata"]["namespace"] = namespace.clone().into();
            }
        }
        Ok(Info { mapping, namespace, name, object, source: source.to_string() })
    }

    /// The objects themselves, with what went wrong on the way.
    pub(crate) async fn infos(&self, query: &Query) -> Result<(Vec<Info>, Vec<Failure>)> {
        self.chosen(query, true).await
    }

    /// Objects by name. All of a kind are meant only with a selector, or where the command says so.
    pub(crate) async fn chosen(&self, query: &Query, lists: bool) -> Result<(Vec<Info>, Vec<Failure>)> {
        let (wanted, mut failures) = self.wanted(query).await?;
        let unnamed = wanted.iter().any(|wanted| matches!(wanted, Wanted::List(_)));
        if unnamed && !lists && query.selector.is_empty() {
            return Err(Failure::message("resource(s) were provided, but no name was specified"));
        }
        let mut infos = Vec::new();
        for wanted in wanted {
            match self.fetch(query, wanted).await {
                Ok(found) => infos.extend(found),
                Err(failure) => failures.push(failure),
            }
        }
        Ok((infos, failures))
    }

    pub(crate) async fn fetch(&self, query: &Query, wanted: Wanted) -> Result<Vec<Info>> {
        match wanted {
            Wanted::Local(info) => Ok(vec![self.latest(info).await?]),
            Wanted::Named { mapping, name } => {
                if query.all_namespaces && mapping.namespaced {
                    return Err(Failure::message("a resource cannot be retrieved by name across all namespaces"));
                }
                let namespace = if mapping.namespaced { self.namespace()?.to_string() } else { String::new() };
                let mut path = mapping.object(&namespace, &name);
                if !query.subresource.is_empty() {
                    path = format!("{path}/{}", query.subresource);
                }
                let object = match self.send(&Call::get(path)).await {
                    Ok(object) => object,
                    Err(failure) => return Err(self.or_no_namespace(&mapping, failure).await),
                };
                Ok(vec![Info { mapping, namespace, name, object, source: String::new() }])
            }
            Wanted::List(mapping) => {
                let namespace = self.scope(query)?;
                let items = self.list(&mapping, &namespace, query).await?;
                Ok(items.into_iter().map(|object| info_of(&mapping, object)).collect())
            }
        }
    }

    /// An object that is not found may be missing because its namespace is.
    pub(crate) async fn or_no_namespace(&self, mapping: &Mapping, failure: Failure) -> Failure {
        let Ok(namespace) = self.namespace() else { return failure };
        // The default namespace is always there.
        if !failure.is_not_found() || !mapping.namespaced || ["", "default"].contains(&namespace) {
            return failure;
        }
        match self.send(&Call::get(format!("/api/v1/namespaces/{}", mapping::escaped(namespace)))).await {
            Err(missing) if missing.is_not_found() => missing,
            _ => failure,
        }
    }

    /// What the server has of an object from a file.
    pub(crate) async fn latest(&self, info: Info) -> Result<Info> {
        let object = self.send(&Call::get(info.path())).await?;
        Ok(Info { object, ..info })
    }

    /// All items, in pages.
    pub(crate) async fn list(&self, mapping: &Mapping, namespace: &str, query: &Query) -> Result<Vec<Value>> {
        let mut items = Vec::new();
        let mut next = String::new();
        loop {
            let call = Call::get(mapping.collection(namespace))
                .with("labelSelector", query.selector.as_str())
                .with("fieldSelector", query.fields.as_str())
                .with("limit", if query.chunk > 0 { query.chunk.to_string() } else { String::new() })
                .with("continue", next.as_str());
            let mut page = self.send(&call).await.map_err(|failure| unable(mapping, query, failure))?;
            next = page["metadata"]["continue"].as_str().unwrap_or_default().to_string();
            items.extend(flatten(page.take()));
            if next.is_empty() {
                return Ok(items);
            }
        }
    }
}

/// A list that cannot be had is told with the selectors that were asked for.
pub(crate) fn unable(mapping: &Mapping, query: &Query, failure: Failure) -> Failure {
    match failure {
        Failure::Status { status, .. } if matches!(status["reason"].as_str(), Some("BadRequest" | "NotFound")) => {
            let resource = format!("{}, Resource={}", mapping.api_version_with_slash(), mapping.plural);
            let prefix = if query.selector.is_empty() && query.fields.is_empty() {
                format!("Unable to list {resource:?}: ")
            } else {
                format!(
                    "Unable to find {resource:?} that match label selector {:?}, field selector {:?}: ",
                    query.selector, query.fields
                )
            };
            Failure::Status { status, prefix }
        }
        other => other,
    }
}

pub(crate) fn info_of(mapping: &Mapping, object: Value) -> Info {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_string();
    let (namespace, name) = (text("namespace"), text("name"));
    Info { mapping: mapping.clone(), namespace, name, object, source: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_types_and_names() {
        let split = |line: &str| words(&line.split(' ').map(str::to_string).collect::<Vec<_>>());
        let owned = |texts: &[&str]| texts.iter().map(|text| text.to_string()).collect::<Vec<_>>();
        assert_eq!(split("pods").unwrap(), Words::Types(owned(&["pods"]), vec![]));
        assert_eq!(split("pods,svc a b").unwrap(), Words::Types(owned(&["pods", "svc"]), owned(&["a", "b"])));
        assert_eq!(
            split("pod/a svc/b").unwrap(),
            Words::Pairs(vec![("pod".into(), "a".into()), ("svc".into(), "b".into())])
        );
        for (line, part) in
            [("pods pod/a", "there is no need"), ("pod/", "must have a single"), ("a/b/c", "more than one slash")]
        {
            assert!(split(line).unwrap_err().text().contains(part), "{line}");
        }
    }
}
