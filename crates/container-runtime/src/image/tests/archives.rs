//! Imports: layouts, docker-archives, several images in one, and archives that are broken.

use std::path::PathBuf;

use super::super::manifest::{digest_of, digits};
use super::{BUILT_IN, Fixture, Packing, Tar, TestImage, pack, tar_of};

fn write(fixture: &Fixture, name: &str, bytes: &[u8]) -> PathBuf {
    let path = fixture.folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn docker_archive(images: &[(&TestImage, &str)]) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut manifest = Vec::new();
    for (image, tag) in images {
        let config = format!("{}.json", digits(&image.id()));
        let layers: Vec<String> =
            image.layers.iter().map(|(_, layer)| format!("{}/layer.tar", digits(&digest_of(layer)))).collect();
        manifest.push(serde_json::json!({ "Config": config, "RepoTags": [tag], "Layers": layers }));
        files.push((config, image.config.clone()));
        files.extend(layers.into_iter().zip(image.layers.iter().map(|(_, layer)| layer.clone())));
    }
    files.push(("manifest.json".to_owned(), serde_json::to_vec(&manifest).unwrap()));
    files
}

#[tokio::test]
async fn layouts_come_as_folders_and_as_archives_of_any_packing() {
    let (one, two) = (TestImage::small("one"), TestImage::small("two"));
    let files = TestImage::layout(&[(&one, "docker.io/library/one:v1"), (&two, "two")]);
    let fixture = Fixture::new().await;
    let folder = fixture.folder.path().join("layout");
    for (name, content) in &files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let tar = tar_of(&files);
    let archives = [
        folder,
        write(&fixture, "plain.tar", &tar),
        write(&fixture, "gzip.tar.gz", &pack(&tar, Packing::Gzip)),
        write(&fixture, "zstd.tar.zst", &pack(&tar, Packing::Zstd)),
    ];
    for archive in archives {
        let names = fixture.images.import(&archive).await.unwrap();
        assert_eq!(names, ["docker.io/library/one:v1", "docker.io/library/two:latest"]);
        assert_eq!(fixture.images.get("one:v1").unwrap().id, one.id());
        assert_eq!(fixture.images.get(&format!("two@{}", two.digest())).unwrap().id, two.id());
        assert_eq!((fixture.count("layers"), fixture.count("work")), (2, 0));
        for image in [&one, &two] {
            fixture.images.remove(&image.id()).await.unwrap();
        }
        fixture.assert_empty();
    }
}

#[tokio::test]
async fn what_docker_saves_is_taken() {
    let shared = Tar::new().file("base", b"base").finish();
    let top = Tar::new().file("top", b"top").finish();
    let one = TestImage::new(&[(shared.clone(), Packing::None)]);
    let two = TestImage::new(&[(shared, Packing::None), (top, Packing::None)]);
    let fixture = Fixture::new().await;
    let archive =
        write(&fixture, "docker.tar", &tar_of(&docker_archive(&[(&one, "app:one"), (&two, "quay.io/app:two")])));
    assert_eq!(fixture.images.import(&archive).await.unwrap(), ["docker.io/library/app:one", "quay.io/app:two"]);
    // The layer that both have is there once.
    assert_eq!(fixture.count("layers"), 2);
    let image = fixture.images.get("quay.io/app:two").unwrap();
    assert_eq!((image.config.user.as_str(), image.config.stop_signal.as_deref()), ("7", Some("SIGINT")));
    let snapshot = fixture.images.prepare(&image.id, "c1").await.unwrap();
    assert_eq!(std::fs::read(snapshot.lower[0].join("top")).unwrap(), b"top");
    assert_eq!(std::fs::read(snapshot.lower[1].join("base")).unwrap(), b"base");
}

#[tokio::test]
async fn links_in_an_archive_stand_for_their_files() {
    let layer = Tar::new().file("x", b"y").finish();
    let image = TestImage::new(&[(layer.clone(), Packing::None)]);
    let config = format!("{}.json", digits(&image.id()));
    let manifest = serde_json::json!([{ "Config": config, "RepoTags": null, "Layers": ["a/layer.tar"] }]);
    let tar = Tar::new()
        .file("b/layer.tar", &layer)
        .symlink("a/layer.tar", "../b/layer.tar")
        .file(&config, &image.config)
        .file("manifest.json", &serde_json::to_vec(&manifest).unwrap())
        .finish();
    let fixture = Fixture::new().await;
    let archive = write(&fixture, "a.tar", &tar);
    assert_eq!(fixture.images.import(&archive).await.unwrap(), [image.id()]);
}

#[tokio::test]
async fn broken_archives_leave_nothing() {
    let image = TestImage::small("x");
    let files = TestImage::layout(&[(&image, "x")]);
    let whole = tar_of(&files);
    let without = |part: usize| tar_of(&[&files[..part], &files[part + 1..]].concat());
    let mut changed = files.clone();
    let last = changed[3].1.len() - 1;
    changed[3].1[last] ^= 1;
    let mut lying = docker_archive(&[(&image, "x")]);
    lying[1].1 = Tar::new().file("etc/motd", b"another").finish();
    let hostile = {
        let layer = Tar::new().symlink("a", "/etc").hardlink("b", "../../../../etc/hostname").finish();
        tar_of(&TestImage::layout(&[(&TestImage::new(&[(layer, Packing::Gzip)]), "x")]))
    };
    let fixture = Fixture::new().await;
    let cases: [(&str, Vec<u8>, &str); 10] = [
        ("cut", whole[..1700].to_vec(), "archive is broken"),
        ("garbage", b"no archive at all".repeat(100), "archive is broken"),
        ("cut-gzip", pack(&whole, Packing::Gzip)[..200].to_vec(), "archive is broken"),
        ("empty", Vec::new(), "unrecognized image format"),
        ("no-index", without(1), "unrecognized image format"),
        ("no-blob", without(2), "archive has no blobs/sha256/"),
        ("changed", tar_of(&changed), "is broken"),
        ("lying", tar_of(&lying), "wrong diff id"),
        ("climbing", hostile, "failed to unpack \"b\""),
        ("name", tar_of(&TestImage::layout(&[(&image, "Bad Name")])), "failed to parse image reference \"Bad Name\""),
    ];
    for (name, bytes, expected) in cases {
        let path = write(&fixture, name, &bytes);
        let error = fixture.images.import(&path).await.unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(name), "{name}: {error}");
        fixture.assert_empty();
    }
    let missing = fixture.images.import(&fixture.folder.path().join("missing.tar")).await.unwrap_err();
    assert!(missing.message.contains("missing.tar"), "{missing}");
}

#[tokio::test]
async fn every_archive_of_a_folder() {
    let fixture = Fixture::new().await;
    let folder = fixture.folder.path().join("images");
    assert!(fixture.images.import_folder(&folder).await.unwrap().is_empty());
    std::fs::create_dir(&folder).unwrap();
    let tar = |text: &str| tar_of(&TestImage::layout(&[(&TestImage::small(text), text)]));
    std::fs::write(folder.join("b.tar.gz"), pack(&tar("b"), Packing::Gzip)).unwrap();
    std::fs::write(folder.join("a.tar"), b"broken").unwrap();
    std::fs::write(folder.join("c.tar"), tar("c")).unwrap();
    std::fs::write(folder.join("notes.txt"), b"no archive").unwrap();
    let results = fixture.images.import_folder(&folder).await.unwrap();
    assert_eq!(results.iter().map(|(_, result)| result.is_ok()).collect::<Vec<_>>(), [false, true, true]);
    assert!(fixture.images.get("b").is_some() && fixture.images.get("c").is_some());
}

#[tokio::test]
async fn an_image_that_is_built_in_is_pulled_from_nowhere() {
    let fixture = Fixture::new().await;
    let image = TestImage::small("one");
    let archive = write(&fixture, "archive.tar", &tar_of(&TestImage::layout(&[(&image, BUILT_IN)])));
    fixture.images.import(&archive).await.unwrap();
    assert_eq!(fixture.images.pull("built.in/image", None).await.unwrap(), image.id());
    assert!(fixture.images.pull("built.in/other", None).await.is_err());
}
