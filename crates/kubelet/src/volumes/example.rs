//! The volume type of CONTRIBUTING.md, compiled and run by the tests only.

use component_base::files;
use futures::FutureExt;

use super::folders::make_folder;
use super::{Problem, Request, Type, Volume, blocking};

pub(super) static TYPE: Type = Type {
    is: |volume| volume.flex_volume.as_ref().is_some_and(|source| source.driver == "example.com/greeting"),
    mount: |request| mount(request).boxed(),
};

async fn mount(request: Request<'_>) -> Result<Volume, Problem> {
    let (path, namespace) = (request.path("example.com~greeting"), request.namespace().to_owned());
    let folder = path.clone();
    let written = blocking(move || {
        make_folder(&folder)?;
        files::write_whole(&folder.join("greeting"), format!("hello {namespace}\n"), 0o644)
    });
    written.await?;
    Ok(Volume::Path { path, read_only: true, relabel: true })
}

#[test]
fn a_volume_is_mounted_again_without_harm() {
    super::tests::on_node("example", async |node| {
        let flex = |driver: &str| serde_json::json!({"name": "hi", "flexVolume": {"driver": driver}});
        let pod = super::tests::pod(serde_json::json!([flex("example.com/greeting")]), serde_json::json!({}));
        let volume = &pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).expect("a volume")[0];
        assert!((TYPE.is)(volume));
        assert!(!(TYPE.is)(&serde_json::from_value(flex("example.com/other")).expect("a volume")));
        let ending = tokio_util::sync::CancellationToken::new();
        for _ in 0..2 {
            let mounted = (TYPE.mount)(node.volumes.request(&pod, volume, &ending)).await;
            let Ok(Volume::Path { path, read_only: true, .. }) = mounted else { panic!("{mounted:?}") };
            assert!(path.ends_with("pods/uid-1/volumes/example.com~greeting/hi"));
            assert_eq!(std::fs::read_to_string(path.join("greeting")).expect("a greeting"), "hello default\n");
        }
    });
}
