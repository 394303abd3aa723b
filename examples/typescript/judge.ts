// Judges the weight tensors of one module by a layout table: node judge.ts CASE, after `tsc`.
// CASE is {table, spec, sizes: {out, in}, tensors: {suffix: [dtype, shape]}}; `table` is a path to a tensors.json.
import { readFileSync } from "node:fs";

type Value = string | number | boolean | null;
type Spec = Record<string, Value | number[]>;
type Term = { of: "out" | "in"; times: number; over: number | string; round: "exact" | "up" | "down" };
type Dtypes = string[] | { set: string };
type Tensor = { suffix: string; dtypes: Dtypes; shape?: "scalar" | Term[]; optional: boolean };
type Row = {
  id: string; part: string; writers: string[]; modes: string[]; weight_formats: string[]; roles: string[];
  stages: Record<string, Value[]>[]; tensors: Tensor[]; forbidden: string[];
};
type DtypeSet = { dtypes?: string[]; by?: string; cases?: Record<string, string[]> };
type Table = { rows: Row[]; dtype_sets: Record<string, DtypeSet> };
type Stored = Record<string, [dtype: string, shape: number[]]>;

const { table: path, spec, sizes, tensors } = JSON.parse(readFileSync(process.argv[2], "utf8")) as {
  table: string; spec: Spec; sizes: { out: number; in: number }; tensors: Stored;
};
const table = JSON.parse(readFileSync(path, "utf8")) as Table;

const matches = (row: Row): boolean =>
  row.part === "weight" && row.writers.includes("eager") && row.modes.includes("quark") &&
  row.weight_formats.includes("real_quantized") && row.roles.includes("linear") && row.stages.length === 1 &&
  Object.entries(row.stages[0]).every(([key, values]) => values.includes((spec[key] ?? null) as Value));

function allowed(dtypes: Dtypes): string[] {
  if (Array.isArray(dtypes)) return dtypes;
  const set = table.dtype_sets[dtypes.set];
  return set.dtypes ?? set.cases?.[String(spec[set.by ?? ""] ?? null)] ?? [];
}

function size({ of, times, over, round }: Term): number {
  const block = spec.block_size as number[] | null;
  const fields: Record<string, unknown> = {
    group_size: spec.group_size, block_rows: block?.[0], block_columns: block?.[1],
  };
  const exact = (sizes[of] * times) / (typeof over === "number" ? over : Number(fields[over]));
  return round === "up" ? Math.ceil(exact) : round === "down" ? Math.floor(exact) : exact;
}

function problems(row: Row): string[] {
  const extra = row.forbidden.filter((suffix) => suffix in tensors).map((suffix) => `${suffix} is too many`);
  return extra.concat(row.tensors.flatMap(({ suffix, dtypes, shape, optional }) => {
    if (!(suffix in tensors)) return optional ? [] : [`${suffix} is missing`];
    const [dtype, found] = tensors[suffix];
    const wanted = shape === "scalar" || shape === undefined ? null : shape.map(size).join(" × ");
    const told = allowed(dtypes).includes(dtype) ? [] : [`${suffix} is ${dtype}, not ${allowed(dtypes).join(" or ")}`];
    const fits = shape === "scalar" ? found.every((one) => one === 1) : (wanted ?? found.join(" × ")) === found.join(" × ");
    return fits ? told : [...told, `${suffix} is ${found.join(" × ")}, not ${wanted ?? "one number"}`];
  }));
}

const judged = table.rows.filter(matches).map((row) => ({ row: row.id, problems: problems(row) }));
console.log(JSON.stringify(judged.sort((one, other) => one.problems.length - other.problems.length)[0] ?? null));
