// Disentangled attention (DeBERTa-v2/v3) over packed sequences: out_i = softmax_j(scale * (q_i.k_j + q_i.Pk[r(i-j)] + k_j.Pq[r(i-j)])) v_j
//
// r grows with i-j, by one at most, so 32 queries and 64 keys need a contiguous window of rows of Pk and Pq. A block takes 256 queries of
// one head, 32 for each of its 8 warps, and goes over the keys 64 at a time. Each warp forms the two small products (its queries x window of
// Pk, window of Pq x 16 keys) on the tensor cores, puts them into shared memory as half floats, and reads them back sheared. The tables
// L x rows are never made. Windows of neighbouring keys overlap, so the first product lies in a ring of 128 columns to which each step adds
// what is new.
//
// RESIDENT 1: a block stays on its multiprocessor, keeps both tables of its head in shared memory and takes tile after tile. Needs 225 kB of
// it (compute capability 9.0); RESIDENT 0 reads the tables through the caches and makes do with 97 kB.
//
// bf16 in and out, sums in float. Head size 64. Keys and queries as [token][head][64], values transposed ([head][64][token]) so
// that two keys of one value lie side by side. Sequences start at multiples of 8 tokens; 64 tokens behind the last one are readable.
// Rows of Pq lie in pairs, in the order in which a thread needs them (disentangled_attention.py, paired).
//
// A row of 64 values is held by four threads: thread c has the 16 bytes at 16c and at 64+16c. Queries, keys and both tables are held in
// the same order, so products come out right without any shuffling. Within 16 keys the order is 4*(n/2) + n%2 (+2 for the second
// eight), so that a thread's four values of V lie side by side.
typedef unsigned int u32; typedef unsigned short u16;
#define D 64
#define WARPS 8
#define THREADS (32 * WARPS)
#define QUERIES 32        // of a warp
#define RING 128          // columns of the ring; row r of the table is column (r + 8g) % 128 of query g, so that eight queries lie in different banks
#define WIDE 56           // halves between the 16 keys of a window: 48 rows of the table, and room so that keys lie in different banks
#define WARP_BYTES (2 * QUERIES * RING + 2 * 16 * WIDE)
enum { LINEAR, CURVED, FLAT };   // how r runs over the distances of a tile: as the distance itself, by the table, not at all
__device__ __forceinline__ void mma(float* d, const u32* a, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// The first of a sum: nothing to add to.
__device__ __forceinline__ void mma_first(float* d, const u32* a, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%10,%10,%10};"
    : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.f));
}
__device__ __forceinline__ u32 half2_of(float lo, float hi) { u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }
__device__ __forceinline__ u32 bf2_of(float lo, float hi) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }
__device__ __forceinline__ float sum_of_halves(u16 x, u16 y) { float f; asm("{.reg .f16 s; add.rn.f16 s, %1, %2; cvt.f32.f16 %0, s;}" : "=f"(f) : "h"(x), "h"(y)); return f; }
__device__ __forceinline__ float ex2(float x) { float f; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(f) : "f"(x)); return f; }
__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
template <int AT> __device__ __forceinline__ u16 half_at(u32 address) { u16 h; asm volatile("ld.shared.u16 %0, [%1+%2];" : "=h"(h) : "r"(address), "n"(AT)); return h; }
__device__ __forceinline__ void put(u32 address, u32 x) { asm volatile("st.shared.b32 [%0], %1;" :: "r"(address), "r"(x)); }
struct Frag { u32 w[8]; };   // one row's 64 values as thread c holds them: words 0..3 of chunk c, 0..3 of chunk c+4
__device__ __forceinline__ Frag frag_of(uint4 x, uint4 y) {
  Frag f; f.w[0]=x.x; f.w[1]=x.y; f.w[2]=x.z; f.w[3]=x.w; f.w[4]=y.x; f.w[5]=y.y; f.w[6]=y.z; f.w[7]=y.w; return f;
}
// In shared memory the halves of odd rows change places, so that two rows together touch every bank once.
__device__ __forceinline__ Frag swizzled_row(const uint4* rows, int r, int c) {
  const uint4* p = rows + 8 * r;
  int at = c ^ ((r & 1) << 2);
  return frag_of(p[at], p[at ^ 4]);
}
#if RESIDENT
#define ROW_OF_PK(r) swizzled_row(T.PK, r, c)
#define PAIR_OF_PQ(r, x) T.PQ[16 * (r) + ((4 * (x) + c) ^ (((r) & 1) << 2))]
#else
#define ROW_OF_PK(r) frag_of(__ldg(T.PK + 8 * (r) + c), __ldg(T.PK + 8 * (r) + c + 4))
#define PAIR_OF_PQ(r, x) __ldg(T.PQ + 16 * (r) + 4 * (x) + c)
#endif
__device__ __forceinline__ void copy_16_bytes(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(shared_address(to)), "l"(from));
}
__device__ __forceinline__ void copies_done() { asm volatile("cp.async.commit_group;\n cp.async.wait_group 0;" ::: "memory"); __syncthreads(); }
// 64 keys; and 64 values of each of the 64 dimensions, in groups of 16 keys of which each row begins with another.
__device__ __forceinline__ void fetch_keys(uint4* to, const u16* K, long sk) {
  for (int i = threadIdx.x; i < 512; i += THREADS) copy_16_bytes(to + (i ^ (((i >> 3) & 1) << 2)), K + (long)(i >> 3) * sk + 8 * (i & 7));
}
__device__ __forceinline__ void fetch_values(uint4* to, const u16* VT, long sv) {
  for (int i = threadIdx.x; i < 512; i += THREADS) copy_16_bytes(to + (i ^ (((i >> 3) & 3) << 1)), VT + (long)(i >> 3) * sv + 8 * (i & 7));
}
struct Tile {
  const uint4 *K, *PK, *PQ;   // 64 keys in shared memory, and the tables
  const u16 *V, *twice;       // twice the row of each distance, at distance 0
  u32 ring, window;           // the warp's own, as shared addresses; the ring's begins at a multiple of 256
  int n, i0, rows, g, c;
};
typedef float Scores[2][8][4];
// Scores of the warp's queries against the 64 keys from j0 on. `low`: rows below it are not in the ring yet.
template <int KIND> __device__ __forceinline__ void score(Scores& s, const u32 (&q)[2][4][4], const Tile& T, int d0, int first, int& low) {
  const int g = T.g, c = T.c, half = T.rows >> 1;
  while (low > first) {
    low -= 16;
    Frag p[2] = {ROW_OF_PK(low + g), ROW_OF_PK(low + 8 + g)};
    float a[2][2][4];
    #pragma unroll
    for (int x = 0; x < 4; x++)
      #pragma unroll
      for (int u = 0; u < 2; u++)
        #pragma unroll
        for (int m = 0; m < 2; m++) (x ? mma : mma_first)(a[u][m], q[m][x], p[u].w[2 * x], p[u].w[2 * x + 1]);
    #pragma unroll
    for (int u = 0; u < 2; u++) {
      const u32 at = T.ring + 2 * RING * g + ((2 * (low + 8 * u + 8 * g)) & (2 * RING - 1)) + 4 * c;
      #pragma unroll
      for (int m = 0; m < 2; m++) {
        put(at + 2 * RING * 16 * m, half2_of(a[u][m][0], a[u][m][1]));
        put(at + 2 * RING * (16 * m + 8), half2_of(a[u][m][2], a[u][m][3]));
      }
    }
  }
  __syncwarp();
  const u32 row = T.ring + 2 * RING * g;
  u16 flat[4];
  if (KIND == FLAT) {
    const u32 at = row + ((2 * (first + 8 * g)) & (2 * RING - 1));
    flat[0] = half_at<0>(at); flat[1] = half_at<2 * RING * 8>(at); flat[2] = half_at<2 * RING * 16>(at); flat[3] = half_at<2 * RING * 24>(at);
  }
  u32 r0[8], r1[8];   // twice the rows of the distances of the first 16 queries; those of the second are of the block before
  const u16* near = T.twice + (d0 + g - 4 * c);
  if (KIND == CURVED)
    #pragma unroll
    for (int z = 0; z < 8; z++) r1[z] = near[16 + 8 * (z >> 2) - (z & 3)];
  #pragma unroll
  for (int t = 0; t < 4; t++) {
    const int key = 16 * t + 4 * (g >> 1) + (g & 1);   // and the one two behind it
    const Frag k0 = swizzled_row(T.K, key, c), k1 = swizzled_row(T.K, key + 2, c);
    #pragma unroll
    for (int x = 0; x < 4; x++)
      #pragma unroll
      for (int m = 0; m < 2; m++) {
        (x ? mma : mma_first)(s[m][2 * t], q[m][x], k0.w[2 * x], k0.w[2 * x + 1]);
        (x ? mma : mma_first)(s[m][2 * t + 1], q[m][x], k1.w[2 * x], k1.w[2 * x + 1]);
      }
    if (KIND == CURVED)
      #pragma unroll
      for (int z = 0; z < 8; z++) r0[z] = near[8 * (z >> 2) - (z & 3) - 16 * t];
    // rows from rb on, an even one, 16 at a time
    const int rb = KIND == LINEAR ? half + d0 - 16 * t - 16 : KIND == FLAT ? first & ~1 : (T.twice[d0 - 16 * t - 15] >> 1) & ~1;
    const int nb = KIND == LINEAR ? 3 : KIND == FLAT ? 1 : (((T.twice[d0 - 16 * t + 31] >> 1) - rb) >> 4) + 1;
    #pragma unroll 1
    for (int u = 0; u < nb; u++) {
      const int pair = min((rb >> 1) + 8 * u + g, half - 1);
      float a[2][4];
      #pragma unroll
      for (int x = 0; x < 4; x++) {
        const uint4 p = PAIR_OF_PQ(pair, x);
        const u32 both[4] = {p.x, p.y, p.z, p.w};
        (x ? mma : mma_first)(a[0], both, k0.w[2 * x], k0.w[2 * x + 1]);
        (x ? mma : mma_first)(a[1], both, k1.w[2 * x], k1.w[2 * x + 1]);
      }
      const u32 at = T.window + 4 * WIDE * c + 32 * u + 4 * g;
      put(at, half2_of(a[0][0], a[0][2])); put(at + 2 * WIDE, half2_of(a[0][1], a[0][3]));
      put(at + 16 * WIDE, half2_of(a[1][0], a[1][2])); put(at + 18 * WIDE, half2_of(a[1][1], a[1][3]));
    }
    __syncwarp();
    // query 16m + 8y + g, key 16t + 4c + 2x + e
    const u32 linear = 2 * (half + d0 - 16 * t + 9 * g - 4 * c);
    const u32 own = T.window + 4 * WIDE * c - (KIND == LINEAR ? 0 : 2 * rb);
#define ONE(m, y, x, e) { \
      u16 of_query, of_key; \
      if (KIND == LINEAR) { \
        of_query = half_at<2 * RING * (16 * m + 8 * y)>(row + ((linear + 2 * (16 * m + 8 * y - 2 * x - e)) & (2 * RING - 1))); \
        of_key = half_at<2 * WIDE * (8 * x + e) + 2 * (16 * m + 8 * y - 2 * x - e + 16)>(own + 2 * (g - 4 * c)); \
      } else if (KIND == FLAT) { of_query = flat[2 * m + y]; of_key = half_at<2 * WIDE * (8 * x + e)>(own + 2 * first); } \
      else { \
        const u32 r = m ? r1[4 * y + 2 * x + e] : r0[4 * y + 2 * x + e]; \
        of_query = half_at<2 * RING * (16 * m + 8 * y)>(row + ((r + 16 * g) & (2 * RING - 1))); \
        of_key = half_at<2 * WIDE * (8 * x + e)>(own + r); \
      } \
      s[m][2 * t + x][2 * y + e] += sum_of_halves(of_query, of_key); }
#define FOUR(m, y) ONE(m, y, 0, 0) ONE(m, y, 0, 1) ONE(m, y, 1, 0) ONE(m, y, 1, 1)
    FOUR(0, 0) FOUR(0, 1) FOUR(1, 0) FOUR(1, 1)
    if (KIND == CURVED)
      #pragma unroll
      for (int z = 0; z < 8; z++) r1[z] = r0[z];
    __syncwarp();
  }
}
__device__ __forceinline__ void take_values(Scores& s, float (&o)[2][8][4], float (&top)[2][2], float (&l)[2][2], const Tile& T, int j0, float scale) {
  const int g = T.g, c = T.c;
  if (j0 + 64 > T.n)
    #pragma unroll
    for (int m = 0; m < 2; m++)
      #pragma unroll
      for (int u = 0; u < 8; u++)
        #pragma unroll
        for (int e = 0; e < 4; e++)
          if (j0 + 16 * (u >> 1) + 4 * c + 2 * (u & 1) + (e & 1) >= T.n) s[m][u][e] = -1e30f;
  #pragma unroll
  for (int m = 0; m < 2; m++)
    #pragma unroll
    for (int y = 0; y < 2; y++) {
      float high = top[m][y];
      #pragma unroll
      for (int u = 0; u < 8; u++) { high = fmaxf(high, s[m][u][2 * y]); high = fmaxf(high, s[m][u][2 * y + 1]); }
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 1)); high = fmaxf(high, __shfl_xor_sync(~0u, high, 2));
      const float f = ex2((top[m][y] - high) * scale), down = -high * scale;
      float sum = 0.f;
      top[m][y] = high;
      #pragma unroll
      for (int u = 0; u < 8; u++) {
        s[m][u][2 * y] = ex2(s[m][u][2 * y] * scale + down); s[m][u][2 * y + 1] = ex2(s[m][u][2 * y + 1] * scale + down);
        sum += s[m][u][2 * y] + s[m][u][2 * y + 1];
      }
      l[m][y] = l[m][y] * f + sum;   // of this thread's columns; added over the quad at the end
      #pragma unroll
      for (int u = 0; u < 8; u++) { o[m][u][2 * y] *= f; o[m][u][2 * y + 1] *= f; }
    }
  #pragma unroll
  for (int t = 0; t < 4; t++) {
    u32 p[2][4];
    #pragma unroll
    for (int m = 0; m < 2; m++) {
      p[m][0] = bf2_of(s[m][2 * t][0], s[m][2 * t][1]); p[m][1] = bf2_of(s[m][2 * t][2], s[m][2 * t][3]);
      p[m][2] = bf2_of(s[m][2 * t + 1][0], s[m][2 * t + 1][1]); p[m][3] = bf2_of(s[m][2 * t + 1][2], s[m][2 * t + 1][3]);
    }
    #pragma unroll
    for (int u = 0; u < 8; u++) {
      const uint2 v = *(const uint2*)(T.V + 64 * (8 * u + g) + 16 * (t ^ (g & 3)) + 4 * c);
      mma(o[0][u], p[0], v.x, v.y); mma(o[1][u], p[1], v.x, v.y);
    }
  }
}
// `row_of` points at distance 0 and is the same beyond `reach` to both sides; r(d) is half the rows + d up to the distance `linear`.
extern "C" __global__ void __launch_bounds__(THREADS, 1) attention(
    const u16* __restrict__ Q, const u16* __restrict__ K, const u16* __restrict__ VT, const uint4* __restrict__ PK, const uint4* __restrict__ PQ, const u16* __restrict__ row_of, u16* __restrict__ O,
    const int* __restrict__ start, const int* __restrict__ length, const int* __restrict__ tile_seq, const int* __restrict__ tile_at, int n_tiles,
    long sk, long sv, long so, int rows, float scale, int linear, int reach) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const int w = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, c = lane & 3, h = blockIdx.y;
  unsigned char* space = shared;
  PK += (long)h * rows * 8; PQ += (long)h * rows * 8;
#if RESIDENT
  uint4 *own_pk = (uint4*)space, *own_pq = own_pk + rows * 8;
  for (int i = threadIdx.x; i < rows * 8; i += THREADS) {
    own_pk[i ^ (((i >> 3) & 1) << 2)] = __ldg(PK + i); own_pq[i ^ (((i >> 4) & 1) << 2)] = __ldg(PQ + i);
  }
  PK = own_pk; PQ = own_pq; space += rows * 256;
#endif
  uint4 *keys = (uint4*)(space + WARPS * WARP_BYTES), *values = keys + 512;
  u16* twice = (u16*)(values + 512) + reach;
  for (int d = (int)threadIdx.x - reach; d <= reach; d += THREADS) twice[d] = 2 * row_of[d];
  __syncthreads();
  Tile T;
  T.K = keys; T.PK = PK; T.PQ = PQ; T.V = (const u16*)values; T.twice = twice; T.rows = rows; T.g = g; T.c = c;
  T.ring = shared_address(space + w * WARP_BYTES); T.window = T.ring + 2 * QUERIES * RING;
  for (int at = blockIdx.x; at < n_tiles; at += gridDim.x) {
    const int seq = tile_seq[at], i0 = tile_at[at] + w * QUERIES, n = length[seq];
    const long base = start[seq];
    const u16 *from = K + base * sk + h * D, *values_from = VT + (long)h * D * sv + base;
    const bool works = i0 < n;   // the last warps of a sequence may have no queries; they fetch with the others
    fetch_keys(keys, from, sk);
    T.n = n; T.i0 = i0;
    u32 q[2][4][4];
    #pragma unroll
    for (int m = 0; m < 2; m++)
      #pragma unroll
      for (int x = 0; x < 4; x++)
        #pragma unroll
        for (int z = 0; z < 4; z++) {   // word by word: so they come to lie as the tensor cores want them
          const u32* p = (const u32*)(Q + base * sk + h * D + (long)(works ? i0 + 16 * m + 8 * (z & 1) + g : 0) * sk);
          q[m][x][z] = __ldg(p + 16 * (x >> 1) + 4 * c + 2 * (x & 1) + (z >> 1));
        }
    float o[2][8][4], top[2][2], l[2][2];
    #pragma unroll
    for (int m = 0; m < 2; m++) {
      #pragma unroll
      for (int u = 0; u < 8; u++)
        #pragma unroll
        for (int e = 0; e < 4; e++) o[m][u][e] = 0.f;
      top[m][0] = top[m][1] = -1e30f; l[m][0] = l[m][1] = 0.f;
    }
    int low = ((twice[min(i0 + QUERIES - 1, reach)] >> 1) & ~15) + 16;
    for (int j0 = 0; j0 < n; j0 += 64) {
      copies_done();   // the keys are there, and nobody needs the last values any more
      fetch_values(values, values_from + j0, sv);
      Scores s;
      if (works) {
        const int d0 = i0 - j0;
        const int first = twice[max(-reach, min(d0 - 63, reach))] >> 1, last = twice[max(-reach, min(d0 + QUERIES - 1, reach))] >> 1;
        if (first == last) score<FLAT>(s, q, T, d0, first, low);
        else if (d0 + QUERIES - 1 <= linear && 63 - d0 <= linear) score<LINEAR>(s, q, T, d0, first, low);
        else score<CURVED>(s, q, T, d0, first, low);
      }
      copies_done();   // and the other way round
      if (j0 + 64 < n) fetch_keys(keys, from + (long)(j0 + 64) * sk, sk);
      if (works) take_values(s, o, top, l, T, j0, scale);
    }
    u16* out = O + base * so + h * D;
    if (works)
      #pragma unroll
      for (int m = 0; m < 2; m++)
        #pragma unroll
        for (int y = 0; y < 2; y++) {
          float sum = l[m][y];
          sum += __shfl_xor_sync(~0u, sum, 1); sum += __shfl_xor_sync(~0u, sum, 2);
          const float f = 1.f / sum;
          const int i = i0 + 16 * m + 8 * y + g;
          if (i < n)
            #pragma unroll
            for (int u = 0; u < 8; u++) *(u32*)(out + (long)i * so + 8 * u + 2 * c) = bf2_of(o[m][u][2 * y] * f, o[m][u][2 * y + 1] * f);
        }
  }
}
