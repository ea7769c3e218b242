/** A typed client of daband: the calls of the OpenAPI description, with a key, and problems as errors. */

import createFetchClient, { type Client } from "openapi-fetch";

import type { components, paths } from "./schema.js";

export type { components, paths };
export type Schemas = components["schemas"];
export type Problem = Schemas["Problem"];
export type Decision = Schemas["Decision"];

export interface Options {
  /** Where the service is. */
  url?: string;
  /** An API key, where the service needs one. */
  key?: string;
  /** Another `fetch`, for a proxy or a test. */
  fetch?: (request: Request) => Promise<Response>;
}

/** What the service refused; `problem` is RFC 9457. */
export class ProblemError extends Error {
  constructor(readonly problem: Problem) {
    const places = (problem.errors ?? []).map((each) => `\n  ${each.pointer} ${each.detail}`);
    super(`${problem.status} ${problem.title}: ${problem.detail}${places.join("")}`);
    this.name = "ProblemError";
  }

  /** The kind of problem, such as `unknown-experiment`. */
  get slug(): string {
    return this.problem.type.split("/").at(-1) ?? "";
  }
}

/** There was no answer; the message says why, `cause` is what `fetch` threw. */
export class UnreachableError extends Error {
  constructor(cause: TypeError) {
    const reason = cause.cause instanceof Error ? cause.cause.message : "";
    super(`no answer from the service: ${reason || cause.message}`, { cause });
    this.name = "UnreachableError";
  }
}

/** Every call of the service, typed by its path; see openapi-fetch. */
export function createApi(options: Options = {}): Client<paths> {
  const headers = options.key === undefined ? {} : { Authorization: `Bearer ${options.key}` };
  const own = options.fetch === undefined ? {} : { fetch: options.fetch };
  return createFetchClient<paths>({ baseUrl: options.url ?? DEFAULT_URL, headers, ...own });
}

export const DEFAULT_URL = "http://127.0.0.1:8000";

interface Fetched<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The data of an answer; throws `ProblemError` for a problem, `UnreachableError` without an answer. */
export async function answered<T>(call: Promise<Fetched<T>>): Promise<T> {
  const { data, error, response } = await call.catch((thrown: unknown) => {
    throw thrown instanceof TypeError ? new UnreachableError(thrown) : thrown;
  });
  if (isProblem(error)) {
    throw new ProblemError(error);
  }
  if (data === undefined) {
    throw new Error(`${response.url} answered ${response.status} without data`);
  }
  return data;
}

function isProblem(error: unknown): error is Problem {
  return typeof error === "object" && error !== null && "title" in error && "status" in error;
}

/** The calls that an application makes; all others by `api`. */
export class DabandClient {
  readonly api: Client<paths>;

  constructor(options: Options = {}) {
    this.api = createApi(options);
  }

  /** Create an experiment. */
  createExperiment(body: Schemas["ExperimentRequest"]): Promise<Schemas["Experiment"]> {
    return answered(this.api.POST("/experiments", { body }));
  }

  /** Decide one round; with a `request_id` it is safe to repeat. */
  select(body: Schemas["SelectRequest"]): Promise<Schemas["Selected"]> {
    return answered(this.api.POST("/select", { body }));
  }

  /** Report the reward of a decision, 0 to 1; safe to repeat. */
  reward(decisionId: string, reward: number): Promise<Schemas["Rewarded"]> {
    return answered(this.api.POST("/reward", { body: { decision_id: decisionId, reward } }));
  }

  /** Decide for target contexts with the frozen policy. */
  async targetSelect(body: Schemas["TargetSelectRequest"]): Promise<Schemas["TargetSelected"]> {
    const found = await answered(this.api.POST("/target/select", { body }));
    return found as Schemas["TargetSelected"]; // an npy table comes only if `Accept` asks for it
  }

  /** Where an experiment stands. */
  state(name: string): Promise<Schemas["State"]> {
    return answered(this.api.GET("/experiments/{name}/state", { params: { path: { name } } }));
  }
}
