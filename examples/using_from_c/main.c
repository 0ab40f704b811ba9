/* Causal self-attention of three tokens, by a program in C. */
#include <saccade/c_api.h>
#include <stdio.h>

int main(void) {
  float x[3][3] = {{0.43f, 0.15f, 0.89f}, {0.55f, 0.87f, 0.66f}, {0.57f, 0.85f, 0.64f}}, o[3][3];
  const int64_t shape[] = {3, 3};
  const saccade_tensor input = {x, SACCADE_F32, 2, shape, NULL}, output = {o, SACCADE_F32, 2, shape, NULL};
  saccade_options* options = NULL;
  int row;
  if (saccade_options_create(SACCADE_ATTENTION_OPTIONS, &options) != SACCADE_OK ||
      saccade_options_set_f64(options, "scale", 1.0) != SACCADE_OK ||
      saccade_options_set_text(options, "causal", "top_left") != SACCADE_OK ||
      saccade_attention(&input, &input, &input, &output, options) != SACCADE_OK) {
    fprintf(stderr, "%s\n", saccade_last_error());
    saccade_options_destroy(options);
    return 1;
  }
  saccade_options_destroy(options);
  for (row = 0; row < 3; ++row)
    printf("%s[%.4f, %.4f, %.4f]%s\n", row == 0 ? "[" : " ", o[row][0], o[row][1], o[row][2],
           row == 2 ? "]" : ",");
  return 0;
}
