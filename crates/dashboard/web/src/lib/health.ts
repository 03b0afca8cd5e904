// How an object is, in one word, as its page's head shows it. Lists get it from the server.

import type { Health, Obj } from './types';

const condition = (object: Obj, type: string): Obj | undefined => (object.status?.conditions ?? []).find((one: Obj) => one.type === type);

export function health(kind: string, object: Obj): { health: Health; word: string } {
  if (object.metadata?.deletionTimestamp) return { health: 'progressing', word: 'Terminating' };
  switch (kind) {
    case 'Pod': return pod(object);
    case 'Node': return node(object);
    case 'Deployment': case 'StatefulSet': case 'ReplicaSet': case 'ReplicationController': return replicas(object);
    case 'DaemonSet': return compared(object.status?.numberReady ?? 0, object.status?.desiredNumberScheduled ?? 0);
    case 'Job': return job(object);
    case 'PersistentVolumeClaim': case 'PersistentVolume': case 'Namespace': return phase(object.status?.phase);
    default: return other(object);
  }
}

function pod(object: Obj): { health: Health; word: string } {
  const statuses = [...(object.status?.initContainerStatuses ?? []), ...(object.status?.containerStatuses ?? [])] as Obj[];
  const waiting = statuses.map((one) => one.state?.waiting?.reason).find((reason) => reason && !['ContainerCreating', 'PodInitializing'].includes(reason));
  if (waiting) return { health: 'failing', word: waiting };
  switch (object.status?.phase) {
    case 'Running': return condition(object, 'Ready')?.status === 'True' ? { health: 'ok', word: 'Running' } : { health: 'warning', word: 'Not ready' };
    case 'Succeeded': return { health: 'ok', word: 'Completed' };
    case 'Failed': return { health: 'failing', word: object.status.reason ?? 'Failed' };
    case 'Pending': return condition(object, 'PodScheduled')?.status === 'False' ? { health: 'warning', word: 'Unschedulable' } : { health: 'progressing', word: 'Pending' };
    default: return { health: 'unknown', word: object.status?.phase ?? 'Unknown' };
  }
}

function node(object: Obj): { health: Health; word: string } {
  const ready = condition(object, 'Ready')?.status;
  if (ready !== 'True') return { health: 'failing', word: 'Not ready' };
  if (object.spec?.unschedulable) return { health: 'warning', word: 'Cordoned' };
  return { health: 'ok', word: 'Ready' };
}

function compared(ready: number, wanted: number): { health: Health; word: string } {
  if (ready >= wanted) return { health: 'ok', word: `${ready}/${wanted} ready` };
  return { health: ready === 0 ? 'failing' : 'progressing', word: `${ready}/${wanted} ready` };
}

function replicas(object: Obj): { health: Health; word: string } {
  if (condition(object, 'Progressing')?.reason === 'ProgressDeadlineExceeded') return { health: 'failing', word: 'Rollout stuck' };
  return compared(object.status?.readyReplicas ?? 0, object.spec?.replicas ?? 1);
}

function job(object: Obj): { health: Health; word: string } {
  if (condition(object, 'Failed')?.status === 'True') return { health: 'failing', word: 'Failed' };
  if (condition(object, 'Complete')?.status === 'True') return { health: 'ok', word: 'Complete' };
  return { health: 'progressing', word: object.spec?.suspend ? 'Suspended' : 'Running' };
}

function phase(word: string | undefined): { health: Health; word: string } {
  if (word === 'Bound' || word === 'Active' || word === 'Available') return { health: 'ok', word };
  if (word === 'Lost' || word === 'Failed') return { health: 'failing', word };
  return { health: word ? 'progressing' : 'unknown', word: word ?? '' };
}

function other(object: Obj): { health: Health; word: string } {
  const ready = condition(object, 'Ready') ?? condition(object, 'Available') ?? condition(object, 'Established');
  if (!ready) return { health: 'unknown', word: '' };
  return ready.status === 'True' ? { health: 'ok', word: ready.type } : { health: 'warning', word: ready.reason || `Not ${String(ready.type).toLowerCase()}` };
}
