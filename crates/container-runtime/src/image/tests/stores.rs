//! The store: names, containers, removal, other processes, crashes.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Fixture, Packing, Tar, TestImage, open, tar_of};

async fn import(fixture: &Fixture, image: &TestImage, name: &str) {
    let path = fixture.folder.path().join("import.tar");
    std::fs::write(&path, tar_of(&TestImage::layout(&[(image, name)]))).unwrap();
    fixture.images.import(&path).await.unwrap();
}

#[tokio::test]
async fn a_container_keeps_its_layers_whatever_becomes_of_the_image() {
    let fixture = Fixture::new().await;
    let image = TestImage::small("hello");
    import(&fixture, &image, "hello").await;
    let snapshot = fixture.images.prepare(&image.id(), "c1").await.unwrap();
    std::fs::write(snapshot.upper.join("written"), b"by the container").unwrap();
    fixture.images.remove("hello").await.unwrap();
    assert!(fixture.images.get("hello").is_none() && fixture.images.get(&image.id()).is_none());
    assert_eq!(std::fs::read(snapshot.lower[0].join("etc/motd")).unwrap(), b"hello");
    // The same again, also in another process that knows nothing yet.
    let other = open(fixture.folder.path(), "", |_| {}).await;
    assert_eq!(other.prepare(&image.id(), "c1").await.unwrap(), snapshot);
    assert_eq!(std::fs::read(snapshot.upper.join("written")).unwrap(), b"by the container");
    let usage = fixture.images.writable_usage("c1").await.unwrap();
    assert!(usage.inodes == 1 && usage.bytes >= 4096, "{usage:?}");
    other.release("c1").await.unwrap();
    other.release("c1").await.unwrap();
    assert!(!snapshot.upper.exists());
    fixture.assert_empty();
    let error = fixture.images.prepare(&image.id(), "c2").await.unwrap_err();
    assert_eq!(error.code, cri::Code::NotFound);
    assert!(fixture.images.prepare(&image.id(), "../../etc").await.is_err());
}

#[tokio::test]
async fn another_process_sees_what_changes() {
    let fixture = Fixture::new().await;
    let other = open(fixture.folder.path(), "", |_| {}).await;
    let image = TestImage::small("hello");
    import(&fixture, &image, "hello").await;
    assert_eq!(other.get("hello").unwrap().id, image.id());
    other.pin("hello", true).await.unwrap();
    assert!(fixture.images.get("hello").unwrap().pinned);
    other.remove("hello").await.unwrap();
    other.remove("hello").await.unwrap();
    assert!(fixture.images.list().is_empty());
    fixture.assert_empty();
}

#[tokio::test]
async fn another_store_gets_an_image_without_unpacking_it() {
    let (fixture, second) = (Fixture::new().await, Fixture::new().await);
    let image = TestImage::small("hello");
    import(&fixture, &image, "hello").await;
    assert_eq!(fixture.images.share("hello", &second.images).await.unwrap().id, image.id());
    assert_eq!(second.images.get("hello").unwrap(), fixture.images.get("hello").unwrap());
    let motd = |snapshot: super::super::Snapshot| snapshot.lower[0].join("etc/motd");
    let one = motd(fixture.images.prepare(&image.id(), "c1").await.unwrap());
    let two = motd(second.images.prepare(&image.id(), "c1").await.unwrap());
    assert_ne!(one, two);
    assert_eq!(std::fs::metadata(&one).unwrap().ino(), std::fs::metadata(&two).unwrap().ino());
    // Twice is once, and what one of them removes the other keeps.
    fixture.images.share("hello", &second.images).await.unwrap();
    fixture.images.release("c1").await.unwrap();
    fixture.images.remove("hello").await.unwrap();
    fixture.assert_empty();
    assert_eq!(std::fs::read(&two).unwrap(), b"hello");
    let error = fixture.images.share("hello", &second.images).await.unwrap_err();
    assert_eq!(error.code, cri::Code::NotFound);
    assert_eq!((second.count("layers"), second.count("work")), (image.layers.len(), 0));
}

#[tokio::test]
async fn opening_removes_what_a_crash_left() {
    let fixture = Fixture::new().await;
    let image = TestImage::small("hello");
    import(&fixture, &image, "hello").await;
    let root = fixture.root();
    for path in ["work/dead/layer-0/fs/x", "layers/0123/fs", "snapshots/half/fs"] {
        std::fs::create_dir_all(root.join(path)).unwrap();
    }
    std::fs::write(root.join("work/dead/lease"), b"0123\n").unwrap();
    std::fs::write(root.join("configs/0123"), b"{}").unwrap();
    std::fs::write(root.join("index.json.new"), b"{").unwrap();
    let other = open(fixture.folder.path(), "", |_| {}).await;
    assert_eq!(["work", "layers", "snapshots", "configs"].map(|name| fixture.count(name)), [0, 1, 0, 1]);
    assert_eq!(other.get("hello").unwrap().id, image.id());
}

#[tokio::test]
async fn folders_that_a_layer_leaves_unsaid_take_after_the_layers_below() {
    let mut home = Tar::header(tar::EntryType::Directory, 0o750, 0);
    home.set_uid(1000);
    home.set_gid(1000);
    let base = Tar::new().folder("tmp/", 0o1777).entry(home, "home/", "", b"").folder("usr/", 0o755).finish();
    let other_base = Tar::new().folder("tmp/", 0o700).folder("usr/", 0o755).finish();
    let implicit = Tar::new().file("tmp/a", b"").file("home/b", b"").file("usr/c", b"").finish();
    let plain = Tar::new().file("usr/d", b"").finish();
    let one = TestImage::new(&[base, implicit.clone(), plain.clone()].map(|layer| (layer, Packing::Gzip)));
    let two = TestImage::new(&[other_base, implicit, plain].map(|layer| (layer, Packing::Gzip)));
    let fixture = Fixture::new().await;
    import(&fixture, &one, "one").await;
    import(&fixture, &two, "two").await;
    let attributes = |lower: &PathBuf, name: &str| {
        let metadata = std::fs::metadata(lower.join(name)).unwrap();
        (metadata.mode() & 0o7777, metadata.uid())
    };
    let one = fixture.images.prepare(&one.id(), "one").await.unwrap().lower;
    let two = fixture.images.prepare(&two.id(), "two").await.unwrap().lower;
    assert_eq!((attributes(&one[1], "tmp"), attributes(&one[1], "home")), ((0o1777, 0), (0o750, 1000)));
    assert_eq!((attributes(&two[1], "tmp"), attributes(&two[1], "home")), ((0o700, 0), (0o755, 0)));
    // Where nothing differs the layer is shared.
    assert_ne!(one[1], two[1]);
    assert_eq!(one[0], two[0]);
}

#[tokio::test]
async fn layers_lie_on_each_other_as_the_kernel_wants_them() {
    let base = Tar::new().folder("d/", 0o755).file("d/old", b"1").file("gone", b"1").file("kept", b"1").finish();
    let top =
        Tar::new().folder("d/", 0o755).file("d/.wh..wh..opq", b"").file("d/new", b"2").file(".wh.gone", b"").finish();
    let empty = Tar::new().finish();
    let layers = [empty.clone(), base, empty.clone(), top, empty].map(|layer| (layer, Packing::Zstd));
    let image = TestImage::new(&layers);
    let fixture = Fixture::new().await;
    import(&fixture, &image, "x").await;
    let snapshot = fixture.images.prepare(&image.id(), "c").await.unwrap();
    let target = fixture.folder.path().join("mounted");
    std::fs::create_dir(&target).unwrap();
    let lower: Vec<&str> = snapshot.lower.iter().map(|path| path.to_str().unwrap()).collect();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.join(":"),
        snapshot.upper.display(),
        snapshot.work.display()
    );
    let options = std::ffi::CString::new(options).unwrap();
    rustix::mount::mount("overlay", &target, "overlay", rustix::mount::MountFlags::empty(), options.as_c_str())
        .unwrap();
    struct Unmount(PathBuf);
    impl Drop for Unmount {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
        }
    }
    let mounted = Unmount(target.clone());
    let mut names: Vec<_> = ["", "d"]
        .iter()
        .flat_map(|name| std::fs::read_dir(target.join(name)).unwrap())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["d", "kept", "new"]);
    drop(mounted);
}

#[tokio::test]
async fn room_is_made_by_what_was_not_used_for_the_longest_time() {
    let fixture = Fixture::new().await;
    let images = ["one", "two", "three"].map(TestImage::small);
    for (image, name) in images.iter().zip(["one", "two", "three"]) {
        import(&fixture, image, name).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    fixture.images.prepare(&images[0].id(), "c").await.unwrap();
    fixture.images.release("c").await.unwrap();
    let before = fixture.images.usage().await.unwrap();
    assert_eq!(before.bytes, 11);
    assert!(fixture.images.collect(1, Duration::from_secs(3600)).await.unwrap().is_empty());
    fixture.images.pin("two", true).await.unwrap();
    assert_eq!(fixture.images.collect(1, Duration::ZERO).await.unwrap(), [images[2].id()]);
    assert_eq!(fixture.images.collect(100, Duration::ZERO).await.unwrap(), [images[0].id()]);
    assert_eq!(fixture.images.usage().await.unwrap().bytes, 3);
}

#[tokio::test]
async fn preparing_is_quick() {
    let fixture = Fixture::new().await;
    let image = TestImage::small("hello");
    import(&fixture, &image, "hello").await;
    let mut times = Vec::new();
    for number in 0..50 {
        let started = Instant::now();
        fixture.images.prepare(&image.id(), &format!("c{number}")).await.unwrap();
        times.push(started.elapsed());
    }
    times.sort();
    // Well under a millisecond on a quiet machine, even in a debug build.
    println!("median {:?}, slowest {:?}", times[25], times[49]);
    assert!(times[25] < Duration::from_millis(20), "{:?}", times[25]);
    let started = Instant::now();
    for _ in 0..1000 {
        fixture.images.get("hello").unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn an_image_without_layers_has_a_root_too() {
    let fixture = Fixture::new().await;
    let image = TestImage::new(&[]);
    import(&fixture, &image, "scratch/config").await;
    let snapshot = fixture.images.prepare(&image.id(), "c").await.unwrap();
    assert!(snapshot.lower.len() == 1 && snapshot.lower[0].is_dir());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_takes_away_what_another_needs() {
    let fixture = Fixture::new().await;
    let other = open(fixture.folder.path(), "", |_| {}).await;
    let shared = Tar::new().file("shared", b"shared").finish();
    let images: Vec<TestImage> = (0..3)
        .map(|number| Tar::new().file("own", format!("{number}").as_bytes()).finish())
        .map(|own| TestImage::new(&[(shared.clone(), Packing::None), (own, Packing::Gzip)]))
        .collect();
    let archives: Vec<PathBuf> = images
        .iter()
        .enumerate()
        .map(|(number, image)| {
            let path = fixture.folder.path().join(format!("{number}.tar"));
            std::fs::write(&path, tar_of(&TestImage::layout(&[(image, &format!("image-{number}"))]))).unwrap();
            path
        })
        .collect();
    let store = |number: usize| if number.is_multiple_of(2) { fixture.images.clone() } else { other.clone() };
    // Each of these brings its image, uses it and removes it, while the others do the same with the layer they share.
    let workers = (0..6usize).map(|worker| {
        let (mine, theirs) = (store(worker), store(worker + 1));
        let (archive, id) = (archives[worker % 3].clone(), images[worker % 3].id());
        tokio::spawn(async move {
            let mut prepared = 0;
            for round in 0..8 {
                mine.import(&archive).await.unwrap();
                let container = format!("c-{worker}-{round}");
                match theirs.prepare(&id, &container).await {
                    Ok(snapshot) => {
                        prepared += 1;
                        mine.remove(&id).await.unwrap();
                        for (lower, name) in snapshot.lower.iter().zip(["own", "shared"]) {
                            assert!(lower.join(name).exists(), "{worker} {round} {name}");
                        }
                    }
                    // Another worker has the same image and removed it in between.
                    Err(error) => assert_eq!(error.code, cri::Code::NotFound, "{error}"),
                }
                theirs.release(&container).await.unwrap();
            }
            prepared
        })
    });
    let mut prepared = 0;
    for worker in workers {
        prepared += worker.await.unwrap();
    }
    assert!(prepared > 0);
    for image in &images {
        other.remove(&image.id()).await.unwrap();
    }
    fixture.assert_empty();
}
