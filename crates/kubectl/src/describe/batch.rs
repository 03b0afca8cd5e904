//! Jobs and CronJobs.

use serde_json::Value;

use super::template::pod_template;
use super::{controller, head, number, plain, tags, text, time};

pub(crate) fn job(object: &Value) -> String {
    let mut out = head(object);
    if object["spec"]["selector"].is_object() {
        out += &format!("Selector:\t{}\n", super::selector(&object["spec"]["selector"]));
    }
    out += &tags(object);
    if let Some(owner) = controller(object) {
        out += &format!("Controlled By:\t{owner}\n");
    }
    let amount =
        |key: &str| if object["spec"][key].is_null() { "<unset>".to_string() } else { plain(&object["spec"][key]) };
    out += &format!("Parallelism:\t{}\nCompletions:\t{}\n", amount("parallelism"), amount("completions"));
    if !object["spec"]["completionMode"].is_null() {
        out += &format!("Completion Mode:\t{}\n", text(object, "/spec/completionMode"));
    }
    if !object["spec"]["suspend"].is_null() {
        out += &format!("Suspend:\t{}\n", object["spec"]["suspend"]);
    }
    if !object["spec"]["backoffLimit"].is_null() {
        out += &format!("Backoff Limit:\t{}\n", number(object, "/spec/backoffLimit"));
    }
    if !object["spec"]["ttlSecondsAfterFinished"].is_null() {
        out += &format!("TTL Seconds After Finished:\t{}\n", number(object, "/spec/ttlSecondsAfterFinished"));
    }
    let (started, completed) = (text(object, "/status/startTime"), text(object, "/status/completionTime"));
    if !started.is_empty() {
        out += &format!("Start Time:\t{}\n", time(started));
    }
    if !completed.is_empty() {
        out += &format!("Completed At:\t{}\n", time(completed));
    }
    if let (Ok(from), Ok(to)) = (started.parse::<jiff::Timestamp>(), completed.parse::<jiff::Timestamp>()) {
        out += &format!("Duration:\t{}\n", machinery::kind::human_duration(to.as_second() - from.as_second()));
    }
    if !object["spec"]["activeDeadlineSeconds"].is_null() {
        out += &format!("Active Deadline Seconds:\t{}s\n", number(object, "/spec/activeDeadlineSeconds"));
    }
    let active = number(object, "/status/active");
    let ready = match object["status"]["ready"].as_i64() {
        Some(ready) => format!(" ({ready} Ready)"),
        None => String::new(),
    };
    out += &format!(
        "Pods Statuses:\t{active} Active{ready} / {} Succeeded / {} Failed\n",
        number(object, "/status/succeeded"),
        number(object, "/status/failed")
    );
    if object["spec"]["completionMode"] == "Indexed" {
        out += &format!("Completed Indexes:\t{}\n", capped(text(object, "/status/completedIndexes")));
    }
    out += "Pod Template:\n";
    out + &pod_template(&object["spec"]["template"], &[])
}

/// A long list of indexes ends behind the first one that passes this many bytes.
const INDEXES_BYTES: usize = 50;

fn capped(indexes: &str) -> String {
    match indexes.get(INDEXES_BYTES..).and_then(|rest| rest.find(',')) {
        Some(at) => format!("{}...", &indexes[..INDEXES_BYTES + at + 1]),
        None => super::or(indexes, "<none>").to_string(),
    }
}

pub(crate) fn cron_job(object: &Value) -> String {
    let mut out = head(object) + &tags(object);
    out += &format!("Schedule:\t{}\n", text(object, "/spec/schedule"));
    out += &format!("Concurrency Policy:\t{}\n", text(object, "/spec/concurrencyPolicy"));
    out += &format!("Suspend:\t{}\n", title(&object["spec"]["suspend"]));
    out += &format!("Time Zone:\t{}\n", super::or(text(object, "/spec/timeZone"), "<unset>"));
    let unset =
        |key: &str| if object["spec"][key].is_null() { "<unset>".to_string() } else { plain(&object["spec"][key]) };
    out += &format!("Successful Job History Limit:\t{}\n", unset("successfulJobsHistoryLimit"));
    out += &format!("Failed Job History Limit:\t{}\n", unset("failedJobsHistoryLimit"));
    let deadline = match object["spec"]["startingDeadlineSeconds"].as_i64() {
        Some(seconds) => format!("{seconds}s"),
        None => "<unset>".into(),
    };
    out += &format!("Starting Deadline Seconds:\t{deadline}\n");
    let job = &object["spec"]["jobTemplate"];
    out += &format!(
        "Selector:\t{}\n",
        if job["spec"]["selector"].is_object() { super::selector(&job["spec"]["selector"]) } else { "<unset>".into() }
    );
    let amount = |key: &str| if job["spec"][key].is_null() { "<unset>".to_string() } else { plain(&job["spec"][key]) };
    out += &format!("Parallelism:\t{}\nCompletions:\t{}\n", amount("parallelism"), amount("completions"));
    if !job["spec"]["activeDeadlineSeconds"].is_null() {
        out += &format!("Active Deadline Seconds:\t{}s\n", number(job, "/spec/activeDeadlineSeconds"));
    }
    out += "Pod Template:\n";
    out += &pod_template(&job["spec"]["template"], &[]);
    out += &match text(object, "/status/lastScheduleTime") {
        "" => "Last Schedule Time:\t<unset>\n".to_string(),
        last => format!("Last Schedule Time:\t{}\n", time(last)),
    };
    let active: Vec<&str> = super::items(object, "/status/active").iter().map(|job| text(job, "/name")).collect();
    out + &format!("Active Jobs:\t{}\n", if active.is_empty() { "<none>".into() } else { active.join(", ") })
}

fn title(switch: &Value) -> &'static str {
    match switch.as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    }
}
