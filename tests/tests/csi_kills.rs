//! Kills at every step of a volume: of knarr, of the driver and of the whole node, before and after the driver has done what it was
//! asked. Nothing is left afterwards, nothing is lost, and what was finished is not asked for again.

#[path = "support/csi.rs"]
mod csi;
#[path = "support/on_node.rs"]
mod on_node;

use csi::{claim, claimed, describe, driver, nothing_is_left, remove};
use on_node::{Node, mounting, none};
use testkit::CsiDriver;
use testkit::csi::{Fault, Options};

/// A call, and whether the driver has done its work when the kill comes.
const UP: [(&str, Fault); 4] = [
    ("NodeStageVolume", Fault::Hang),
    ("NodeStageVolume", Fault::HangAfter),
    ("NodePublishVolume", Fault::Hang),
    ("NodePublishVolume", Fault::HangAfter),
];
const DOWN: [(&str, Fault); 4] = [
    ("NodeUnpublishVolume", Fault::Hang),
    ("NodeUnpublishVolume", Fault::HangAfter),
    ("NodeUnstageVolume", Fault::Hang),
    ("NodeUnstageVolume", Fault::HangAfter),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Knarr,
    Driver,
    Node,
}

impl Victim {
    /// Kills it in the middle of a call and starts it anew.
    fn dies(self, node: &mut Node, disk: &mut CsiDriver) {
        match self {
            Victim::Knarr => {
                node.server.kill().unwrap();
                disk.heal();
                node.server.restart().unwrap();
            }
            Victim::Driver => {
                disk.crash();
                disk.heal();
                disk.run().unwrap();
            }
            Victim::Node => {
                node.server.kill().unwrap();
                disk.crash();
                disk.heal();
                node.reboot();
                disk.move_to(node.server.machine().pid()).unwrap();
            }
        }
    }
}

fn every_step(victim: Victim) {
    let mut node = Node::start(&[]);
    let mut disk = driver(&node, Options::new("disk.test"));
    describe(&node, "disk.test", none());
    claimed(&node, "data", "disk.test", none());
    let spec = || mounting("echo kept > /v/file; echo here; sleep 600", &[("v", claim("data"), none())]);
    let kept = |disk: &CsiDriver| std::fs::read_to_string(disk.content("data-h").join("file")).unwrap_or_default();
    for (round, (call, fault)) in UP.into_iter().enumerate() {
        let (pod, known) = (format!("up-{round}"), disk.count(&format!("{call} data-h")));
        disk.break_call(call, fault);
        node.pod(&pod, spec());
        disk.until_called(&format!("{call} data-h"), known + 1).unwrap();
        victim.dies(&mut node, &mut disk);
        node.until_ready(&pod);
        node.until_log(&pod, "main", "here");
        remove(&node, &pod);
        nothing_is_left(&node);
        assert_eq!(kept(&disk), "kept\n", "{victim:?} {call}");
    }
    for (round, (call, fault)) in DOWN.into_iter().enumerate() {
        let (pod, known) = (format!("down-{round}"), disk.count(&format!("{call} data-h")));
        node.pod(&pod, spec());
        node.until_ready(&pod);
        if victim == Victim::Knarr {
            // A restart while it runs asks the driver nothing.
            let before = disk.calls();
            node.server.restart().unwrap();
            node.until_ready(&pod);
            assert_eq!(disk.calls(), before);
        }
        disk.break_call(call, fault);
        node.delete(&pod, Some(0));
        disk.until_called(&format!("{call} data-h"), known + 1).unwrap();
        let unpublished = disk.count("NodeUnpublishVolume data-h");
        victim.dies(&mut node, &mut disk);
        node.until_gone(&pod);
        nothing_is_left(&node);
        if call == "NodeUnstageVolume" {
            assert_eq!(disk.count("NodeUnpublishVolume data-h"), unpublished, "what was taken back is not again");
        }
        assert_eq!(kept(&disk), "kept\n", "{victim:?} {call}");
    }
}

#[test]
fn a_killed_knarr_leaks_nothing_and_repeats_nothing() {
    every_step(Victim::Knarr);
}

#[test]
fn a_killed_driver_leaks_nothing() {
    every_step(Victim::Driver);
}

#[test]
fn a_node_that_loses_its_power_leaks_nothing() {
    every_step(Victim::Node);
}
