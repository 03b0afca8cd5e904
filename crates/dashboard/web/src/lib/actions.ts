// What a person can do to an object, through the API as kubectl would.

import { k8s, pathOf, query, Refused, refPath } from './api';
import type { Obj, Ref } from './types';

const MERGE = 'application/merge-patch+json';
const STRATEGIC = 'application/strategic-merge-patch+json';
const JSON_PATCH = 'application/json-patch+json';
const PODS = { group: '', version: 'v1', resource: 'pods' };

export const scale = (ref: Ref, replicas: number) =>
  k8s(refPath(ref, 'scale'), { method: 'PATCH', type: MERGE, body: { spec: { replicas } } });

/** Deployments, StatefulSets and DaemonSets start their pods anew when the template changes; this note is kubectl's. */
export const restart = (ref: Ref) =>
  k8s(refPath(ref), {
    method: 'PATCH', type: STRATEGIC,
    body: { spec: { template: { metadata: { annotations: { 'kubectl.kubernetes.io/restartedAt': new Date().toISOString() } } } } },
  });

export const cordon = (ref: Ref, unschedulable: boolean) =>
  k8s(refPath(ref), { method: 'PATCH', type: MERGE, body: { spec: { unschedulable: unschedulable ? true : null } } });

export const suspend = (ref: Ref, on: boolean) => k8s(refPath(ref), { method: 'PATCH', type: MERGE, body: { spec: { suspend: on } } });
export const pauseRollout = (ref: Ref, on: boolean) => k8s(refPath(ref), { method: 'PATCH', type: MERGE, body: { spec: { paused: on ? true : null } } });

export const remove = (ref: Ref, how: { propagation: string; force: boolean; uid?: string }) =>
  k8s(refPath(ref), {
    method: 'DELETE',
    body: {
      apiVersion: 'v1', kind: 'DeleteOptions', propagationPolicy: how.propagation,
      ...(how.force ? { gracePeriodSeconds: 0 } : {}), ...(how.uid ? { preconditions: { uid: how.uid } } : {}),
    },
  });

export const trigger = (ref: Ref, cronJob: Obj) => {
  const name = `${ref.name.slice(0, 40)}-manual-${Date.now().toString(36)}`;
  return k8s(pathOf({ group: 'batch', version: 'v1', resource: 'jobs' }, ref.namespace), {
    method: 'POST',
    body: {
      apiVersion: 'batch/v1', kind: 'Job',
      metadata: {
        name, annotations: { ...cronJob.spec.jobTemplate.metadata?.annotations, 'cronjob.kubernetes.io/instantiate': 'manual' }, labels: cronJob.spec.jobTemplate.metadata?.labels,
        ownerReferences: [{ apiVersion: 'batch/v1', kind: 'CronJob', name: ref.name, uid: cronJob.metadata.uid, controller: true }],
      },
      spec: cronJob.spec.jobTemplate.spec,
    },
  });
};

// Rollouts.

export interface Revision { number: number; name: string; created: string; cause: string; images: string[]; current: boolean; template: Obj; patch: Obj | null }

export const selectorText = (selector: Obj | undefined): string => {
  const labels = Object.entries(selector?.matchLabels ?? {}).map(([key, value]) => `${key}=${value}`);
  const rules = ((selector?.matchExpressions ?? []) as Obj[]).map((rule) =>
    rule.operator === 'Exists' ? rule.key : rule.operator === 'DoesNotExist' ? `!${rule.key}`
      : `${rule.key} ${rule.operator === 'In' ? 'in' : 'notin'} (${(rule.values ?? []).join(',')})`);
  return [...labels, ...rules].join(',');
};
const ownedBy = (object: Obj) => (item: Obj) => (item.metadata.ownerReferences ?? []).some((owner: Obj) => owner.uid === object.metadata.uid);
const imagesOf = (template: Obj) => ((template?.spec?.containers ?? []) as Obj[]).map((container) => container.image as string);

export async function revisions(ref: Ref, object: Obj): Promise<Revision[]> {
  const own = ref.resource === 'deployments' ? await replicaSets(ref, object) : await controllerRevisions(ref, object);
  return own.sort((a, b) => b.number - a.number);
}

async function replicaSets(ref: Ref, object: Obj): Promise<Revision[]> {
  const sets = await k8s(pathOf({ group: 'apps', version: 'v1', resource: 'replicasets' }, ref.namespace) + query({ labelSelector: selectorText(object.spec.selector) }));
  const current = object.metadata.annotations?.['deployment.kubernetes.io/revision'];
  return (sets.items as Obj[]).filter(ownedBy(object)).map((set) => {
    const number = set.metadata.annotations?.['deployment.kubernetes.io/revision'] ?? '0';
    return {
      number: Number(number), name: set.metadata.name, created: set.metadata.creationTimestamp, current: number === current,
      cause: set.metadata.annotations?.['kubernetes.io/change-cause'] ?? '', images: imagesOf(set.spec.template), template: set.spec.template, patch: null,
    };
  });
}

async function controllerRevisions(ref: Ref, object: Obj): Promise<Revision[]> {
  const all = await k8s(pathOf({ group: 'apps', version: 'v1', resource: 'controllerrevisions' }, ref.namespace) + query({ labelSelector: selectorText(object.spec.selector) }));
  const own = (all.items as Obj[]).filter(ownedBy(object));
  const newest = Math.max(0, ...own.map((item) => item.revision as number));
  return own.map((item) => ({
    number: item.revision, name: item.metadata.name, created: item.metadata.creationTimestamp, current: item.revision === newest,
    cause: item.metadata.annotations?.['kubernetes.io/change-cause'] ?? '', images: imagesOf(item.data?.spec?.template), template: item.data?.spec?.template ?? {}, patch: item.data,
  }));
}

export function rollBack(ref: Ref, revision: Revision) {
  if (revision.patch) return k8s(refPath(ref), { method: 'PATCH', type: STRATEGIC, body: revision.patch });
  const template = structuredClone(revision.template);
  delete template.metadata?.labels?.['pod-template-hash'];
  return k8s(refPath(ref), { method: 'PATCH', type: JSON_PATCH, body: [{ op: 'replace', path: '/spec/template', value: template }] });
}

// Drain.

export interface Draining { namespace: string; name: string; state: 'waiting' | 'evicting' | 'evicted' | 'kept' | 'failed'; why: string }
const EVICT_RETRY_MS = 3_000;

/** Which pods leave: not those of DaemonSets, which would come back at once, and not those that the node itself keeps. */
export function drainPlan(pods: Obj[]): Draining[] {
  return pods.map((pod) => {
    const base = { namespace: pod.metadata.namespace as string, name: pod.metadata.name as string };
    if (pod.metadata.annotations?.['kubernetes.io/config.mirror']) return { ...base, state: 'kept', why: 'kept by the node itself (static pod)' };
    if ((pod.metadata.ownerReferences ?? []).some((owner: Obj) => owner.kind === 'DaemonSet' && owner.controller)) return { ...base, state: 'kept', why: 'of a DaemonSet' };
    if (['Succeeded', 'Failed'].includes(pod.status?.phase)) return { ...base, state: 'kept', why: 'has finished' };
    return { ...base, state: 'waiting', why: '' };
  });
}

export async function podsOn(node: string): Promise<Obj[]> {
  return (await k8s(`/api/v1/pods${query({ fieldSelector: `spec.nodeName=${node}` })}`)).items;
}

/** Evicts one pod; waits while a disruption budget refuses, until stopped. */
export async function evict(pod: Draining, changed: (pod: Draining) => void, stopped: () => boolean) {
  changed({ ...pod, state: 'evicting' });
  while (!stopped()) {
    try {
      await k8s(pathOf(PODS, pod.namespace, pod.name, 'eviction'), { method: 'POST', body: { apiVersion: 'policy/v1', kind: 'Eviction', metadata: { name: pod.name, namespace: pod.namespace } } });
      return changed({ ...pod, state: 'evicted', why: '' });
    } catch (error) {
      const refused = error as Refused;
      if (refused.code === 404) return changed({ ...pod, state: 'evicted', why: 'was gone already' });
      if (refused.code !== 429) return changed({ ...pod, state: 'failed', why: refused.message });
      changed({ ...pod, state: 'evicting', why: refused.message });
      await new Promise((done) => setTimeout(done, EVICT_RETRY_MS));
    }
  }
  changed({ ...pod, state: 'waiting', why: 'stopped' });
}

export async function debugContainer(ref: Ref, image: string, target: string): Promise<string> {
  const name = `debugger-${Math.random().toString(36).slice(2, 7)}`;
  await k8s(refPath(ref, 'ephemeralcontainers'), {
    method: 'PATCH', type: STRATEGIC,
    body: { spec: { ephemeralContainers: [{ name, image, targetContainerName: target || undefined, stdin: true, tty: true, terminationMessagePolicy: 'File', imagePullPolicy: 'IfNotPresent' }] } },
  });
  return name;
}
